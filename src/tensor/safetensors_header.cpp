// Parsing a header that may be hostile: every number is checked before it is used.
#include "tensor/safetensors_header.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/error.h"

namespace tensor {
namespace {

using base::Code;
using base::fail;

constexpr size_t kMaxRank = 16;

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 16> kDtypes = {{
    {"BOOL", at::kBool},
    {"U8", at::kByte},
    {"I8", at::kChar},
    {"I16", at::kShort},
    {"U16", at::kUInt16},
    {"I32", at::kInt},
    {"U32", at::kUInt32},
    {"I64", at::kLong},
    {"U64", at::kUInt64},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"F8_E8M0", at::kFloat8_e8m0fnu},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"F32", at::kFloat},
    {"F64", at::kDouble},
}};

std::string to_text(const JsonMap& json) { return json.dump(-1, ' ', false, JsonMap::error_handler_t::replace); }

// Reads the text once for what the parser does not refuse: a key that comes twice in one object.
class UniqueKeys : public nlohmann::json_sax<JsonMap> {
 public:
  explicit UniqueKeys(const std::string& where) : where_(where) {}
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(JsonMap::number_integer_t) override { return true; }
  bool number_unsigned(JsonMap::number_unsigned_t) override { return true; }
  bool number_float(JsonMap::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(JsonMap::binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    constexpr size_t kDeepest = 64;
    if (open_.size() == kDeepest) fail(Code::corruption, "{}: objects nested deeper than {}", where_, kDeepest);
    open_.emplace_back();
    return true;
  }
  bool end_object() override { return open_.pop_back(), true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t byte, const std::string&, const JsonMap::exception& error) override {
    fail(Code::corruption, "{}: not valid JSON at byte {}: {}", where_, byte, quote_name(error.what()));
  }
  bool key(std::string& key) override {
    if (!open_.back().insert(key).second) fail(Code::corruption, "{}: {} is there twice", where_, quote_name(key));
    return true;
  }

 private:
  const std::string& where_;
  std::vector<std::set<std::string>> open_;
};

at::ScalarType parse_dtype(const JsonMap& json, const std::string& where) {
  for (const auto& [name, dtype] : kDtypes) {
    if (json == name) return dtype;
  }
  fail(Code::corruption, "{}: dtype is {}, which is none that safetensors defines (as F32, BF16, F8_E4M3)", where,
       quote_name(to_text(json)));
}

// A list of integers from 0 to 2^63 - 1.
std::vector<int64_t> parse_sizes(const JsonMap& json, const char* field, const std::string& where) {
  const auto wrong = [&]() {
    fail(Code::corruption, "{}: {} is {}, it should be a list of integers that are not negative", where, field,
         quote_name(to_text(json)));
  };
  if (!json.is_array()) wrong();
  std::vector<int64_t> sizes;
  for (const JsonMap& size : json) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > INT64_MAX) wrong();
    sizes.push_back(size.get<int64_t>());
  }
  return sizes;
}

const JsonMap& field_of(const JsonMap& json, const char* field, const std::string& where) {
  const auto at = json.find(field);
  if (at == json.end()) fail(Code::corruption, "{}: has no {}", where, field);
  return *at;
}

StoredTensor parse_tensor(const std::string& name, const JsonMap& json, int64_t data_bytes, const std::string& file) {
  const std::string where = fmt::format("{}: tensor {}", file, quote_name(name));
  if (!json.is_object()) fail(Code::corruption, "{}: should be an object with dtype, shape and data_offsets", where);
  StoredTensor stored;
  stored.name = name;
  stored.dtype = parse_dtype(field_of(json, "dtype", where), where);
  stored.shape = parse_sizes(field_of(json, "shape", where), "shape", where);
  if (stored.shape.size() > kMaxRank)
    fail(Code::corruption, "{}: has {} dims, at most {} are allowed", where, stored.shape.size(), kMaxRank);
  const std::vector<int64_t> offsets = parse_sizes(field_of(json, "data_offsets", where), "data_offsets", where);
  if (offsets.size() != 2)
    fail(Code::corruption, "{}: data_offsets has {} numbers, it should have 2", where, offsets.size());
  stored.begin = offsets[0];
  stored.end = offsets[1];
  if (stored.begin > stored.end || stored.end > data_bytes) {
    fail(Code::corruption,
         "{}: its bytes {} to {} are not inside the {} bytes that the file holds behind its header (cut short?)", where,
         stored.begin, stored.end, data_bytes);
  }
  int64_t size = static_cast<int64_t>(c10::elementSize(stored.dtype));
  bool fits = true;
  for (const int64_t dim : stored.shape) fits = fits && !__builtin_mul_overflow(size, dim, &size);
  if (!fits || size != stored.size_bytes()) {
    fail(Code::corruption, "{}: its dtype and shape {} make {} bytes, its data_offsets {}", where,
         to_text(JsonMap(stored.shape)), fits ? std::to_string(size) : "more than 2^63", stored.size_bytes());
  }
  return stored;
}

Metadata parse_metadata(const JsonMap& json, const std::string& where) {
  Metadata metadata;
  if (!json.is_object()) fail(Code::corruption, "{}: __metadata__ should be an object of texts", where);
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) fail(Code::corruption, "{}: __metadata__ {} should be a text", where, quote_name(key));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

void check_no_gaps(const std::vector<StoredTensor>& tensors, int64_t data_bytes, const std::string& where) {
  int64_t end = 0;
  const StoredTensor* last = nullptr;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin != end) {
      fail(Code::corruption, "{}: tensor {} begins at byte {}, but {} ends at {} ({})", where, quote_name(tensor.name),
           tensor.begin, last == nullptr ? "the header" : quote_name(last->name), end,
           tensor.begin < end ? "they overlap" : "a hole");
    }
    end = tensor.end;
    last = &tensor;
  }
  if (end != data_bytes) {
    fail(Code::corruption, "{}: {} bytes follow the last tensor, which ends at byte {}", where, data_bytes - end, end);
  }
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

std::string quote_name(const std::string& name) {
  constexpr size_t kLongest = 200;
  return to_text(JsonMap(name.size() <= kLongest ? name : name.substr(0, kLongest) + "..."));
}

std::string dtype_name(at::ScalarType dtype) {
  for (const auto& [name, known] : kDtypes) {
    if (known == dtype) return std::string(name);
  }
  fail(Code::invalid_argument, "safetensors has no name for dtype {}", toString(dtype));
}

JsonMap parse_unique_json(std::string_view text, const std::string& where) {
  UniqueKeys unique(where);
  JsonMap::sax_parse(text.begin(), text.end(), &unique);
  return JsonMap::parse(text.begin(), text.end());
}

Header parse_header(std::string_view text, int64_t data_bytes, const std::string& where) {
  const JsonMap json = parse_unique_json(text, where + " (header)");
  if (!json.is_object()) fail(Code::corruption, "{}: the header should be a JSON object", where);
  Header header;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      header.metadata = parse_metadata(value, where);
    } else {
      header.tensors.push_back(parse_tensor(name, value, data_bytes, where));
    }
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_no_gaps(header.tensors, data_bytes, where);
  return header;
}

std::string write_header(const std::vector<TensorToWrite>& tensors, const Metadata& metadata) {
  JsonMap header = JsonMap::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t begin = 0;
  for (const TensorToWrite& tensor : tensors) {
    const int64_t end = begin + tensor.size_bytes();
    CHECK(!header.contains(tensor.name), "tensor {} is written twice", tensor.name);
    header[tensor.name] = {
        {"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

std::map<std::string, std::string> parse_index(std::string_view text, const std::string& where) {
  const JsonMap json = parse_unique_json(text, where);
  const auto at = json.is_object() ? json.find("weight_map") : json.end();
  if (at == json.end() || !at->is_object()) fail(Code::corruption, "{}: should be an object with a weight_map", where);
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : at->items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>())) {
      fail(Code::corruption, "{}: weight_map gives {} for {}, it should be the plain name of a file in the same folder",
           where, quote_name(to_text(file)), quote_name(name));
    }
    files[name] = file.get<std::string>();
  }
  return files;
}

}  // namespace tensor
