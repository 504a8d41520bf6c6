// Checks and JSON of a manifest.
#include "weight_sync/manifest.h"

#include <charconv>
#include <unordered_set>

#include "base/error.h"
#include "base/hash.h"

namespace weight_sync {
namespace {

using base::Code;
using base::fail;
using base::Json;

constexpr Encoding kEncodings[] = {Encoding::f32, Encoding::bf16, Encoding::i64};

const Json& field_of(const Json& json, const char* field, const std::string& where) {
  const auto at = json.is_object() ? json.find(field) : json.end();
  if (at == json.end()) fail(Code::corruption, "{}: has no {}", where, field);
  return *at;
}

// An integer from 0 to 2^63 - 1, or nothing.
std::optional<int64_t> parse_size(const Json& json) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX) return std::nullopt;
  const auto size = json.get<int64_t>();
  return size < 0 ? std::nullopt : std::optional(size);
}

std::vector<int64_t> parse_shape(const Json& json, const std::string& where) {
  const auto wrong = [&] {
    fail(Code::corruption, "{}: shape is {}, it should be a list of sizes", where, base::to_line(json));
  };
  if (!json.is_array() || json.size() > 8) wrong();
  std::vector<int64_t> shape;
  for (const Json& size : json) {
    const std::optional<int64_t> dim = parse_size(size);
    if (!dim) wrong();
    shape.push_back(*dim);
  }
  return shape;
}

Encoding parse_encoding(const Json& json, const std::string& where) {
  for (const Encoding encoding : kEncodings) {
    if (json == to_string(encoding)) return encoding;
  }
  fail(Code::corruption, "{}: encoding is {}, it should be F32, BF16 or I64", where, base::to_line(json));
}

uint64_t parse_checksum(const Json& json, const std::string& where) {
  uint64_t checksum = 0;
  const std::string text = json.is_string() ? json.get<std::string>() : "";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), checksum, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) {
    fail(Code::corruption, "{}: checksum is {}, it should be 16 hex digits", where, base::to_line(json));
  }
  return checksum;
}

// The size in bytes, or nothing when it does not fit in 63 bits.
std::optional<int64_t> checked_size(const TensorSpec& spec) {
  auto size = static_cast<int64_t>(c10::elementSize(scalar_type(spec.encoding)));
  for (const int64_t dim : spec.shape) {
    if (__builtin_mul_overflow(size, dim, &size)) return std::nullopt;
  }
  return size;
}

ManifestEntry parse_entry(const Json& json, const std::string& where) {
  ManifestEntry entry;
  const Json& name = field_of(json, "name", where);
  if (!name.is_string()) fail(Code::corruption, "{}: name is {}, it should be a text", where, base::to_line(name));
  entry.spec.name = name.get<std::string>();
  const std::string place = where + ", " + base::to_line(name);
  entry.spec.shape = parse_shape(field_of(json, "shape", place), place);
  entry.spec.encoding = parse_encoding(field_of(json, "encoding", place), place);
  entry.checksum = parse_checksum(field_of(json, "checksum", place), place);
  const std::optional<int64_t> size = checked_size(entry.spec);
  const Json& bytes = field_of(json, "bytes", place);
  if (!size || parse_size(bytes) != size) {
    fail(Code::corruption, "{}: bytes is {}, its shape and encoding make {}", place, base::to_line(bytes),
         size ? std::to_string(*size) : "more than 2^63");
  }
  return entry;
}

}  // namespace

std::string to_string(Encoding encoding) {
  switch (encoding) {
    case Encoding::f32:
      return "F32";
    case Encoding::bf16:
      return "BF16";
    case Encoding::i64:
      return "I64";
  }
  return {};
}

at::ScalarType scalar_type(Encoding encoding) {
  switch (encoding) {
    case Encoding::f32:
      return at::kFloat;
    case Encoding::bf16:
      return at::kBFloat16;
    case Encoding::i64:
      return at::kLong;
  }
  return at::kFloat;
}

int64_t TensorSpec::size_bytes() const {
  const std::optional<int64_t> size = checked_size(*this);
  CHECK(size, "{}: its size overflows", name);
  return *size;
}

int64_t Manifest::size_bytes() const {
  int64_t size = 0;
  for (const ManifestEntry& entry : tensors) size += entry.spec.size_bytes();
  return size;
}

Json Manifest::to_json() const {
  Json list = Json::array();
  for (const auto& [spec, checksum] : tensors) {
    list.push_back({{"name", spec.name},
                    {"shape", spec.shape},
                    {"encoding", to_string(spec.encoding)},
                    {"bytes", spec.size_bytes()},
                    {"checksum", base::hash_text(checksum)}});
  }
  return {{"tensors", list}};
}

Manifest Manifest::from_json(const Json& json, const std::string& where) {
  const Json& list = field_of(json, "tensors", where);
  if (!list.is_array()) fail(Code::corruption, "{}: tensors should be a list", where);
  Manifest manifest;
  std::unordered_set<std::string> names;
  for (size_t i = 0; i < list.size(); ++i) {
    manifest.tensors.push_back(parse_entry(list[i], fmt::format("{}: tensors[{}]", where, i)));
    const std::string& name = manifest.tensors.back().spec.name;
    if (!names.insert(name).second) fail(Code::corruption, "{}: {} is listed twice", where, base::to_line(Json(name)));
  }
  return manifest;
}

PublishAs publish_as(const model::Profile& profile) {
  return profile.round_bf16 ? PublishAs::published : PublishAs::master;
}

std::vector<TensorSpec> expected_tensors(const model::Weights& weights, PublishAs as) {
  std::vector<TensorSpec> specs;
  weights.visit_named([&](const model::TensorInfo& info, const Tensor&) {
    const bool wide = as == PublishAs::master || info.published_f32();
    const Encoding encoding = info.stored_as == model::StoredAs::i64 ? Encoding::i64
                              : wide                                 ? Encoding::f32
                                                                     : Encoding::bf16;
    specs.push_back({info.name, info.shape, encoding});
  });
  return specs;
}

}  // namespace weight_sync
