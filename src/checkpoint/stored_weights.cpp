// What a model folder stores for each parameter, and whether it is all there.
#include "checkpoint/stored_weights.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "tensor/formats/block_scale.h"
#include "tensor/text.h"

namespace checkpoint {
namespace {

using base::Code;
using base::fail;
using model::TensorInfo;
using tensor::append_list;
using tensor::BlockFormat;
using tensor::dtype_name;
using tensor::shape_text;
using tensor::StoredTensor;
using tensor::Tensor;

// "layers.3.ffn.experts.7.w1.weight" -> 7, and the name of its stack: w1 and w3 share that of w1.
struct ExpertName {
  int64_t expert = 0;
  std::string stack;
  bool up = false;  // w3: the second half of the rows
};

std::optional<ExpertName> expert_name(const std::string& native) {
  constexpr std::string_view kMark = ".ffn.experts.";
  const size_t at = native.find(kMark);
  if (at == std::string::npos) return std::nullopt;
  const size_t digits = at + kMark.size(), dot = native.find('.', digits);
  ExpertName name;
  name.expert = std::stoll(native.substr(digits, dot - digits));
  std::string leaf = native.substr(dot);
  name.up = leaf == ".w3.weight";
  if (name.up) leaf = ".w1.weight";
  name.stack = native.substr(0, digits) + "{}" + leaf;
  return name;
}

bool is_plain_float(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

// The block format of stored codes; nothing for other dtypes.
std::optional<BlockFormat> code_format(at::ScalarType dtype) {
  if (dtype == at::kFloat8_e4m3fn) return BlockFormat::e4m3;
  if (dtype == at::kChar || dtype == at::kByte) return BlockFormat::e2m1;
  return std::nullopt;
}

std::string form_text(const StoredTensor& stored) { return dtype_name(stored.dtype) + " " + shape_text(stored.shape); }

// What is wrong with the codes and scales of a weight of this shape; empty when nothing is.
std::string scaled_problem(const TensorInfo& info, const StoredTensor& codes, const StoredTensor* scales,
                           BlockFormat format) {
  const bool is_matrix = info.shape.size() == 2 && (format == BlockFormat::e4m3 || info.shape[1] % 2 == 0);
  if (!is_matrix)
    return fmt::format("is {}, a form for matrices; it should be {}", form_text(codes), shape_text(info.shape));
  const std::vector<int64_t> code_shape = tensor::code_shape(info.shape, format);
  const std::vector<int64_t> scale_shape = tensor::scale_shape(info.shape, format);
  if (codes.shape != code_shape) {
    return fmt::format("is {}, {} should be stored as {}", form_text(codes), shape_text(info.shape),
                       shape_text(code_shape));
  }
  if (scales == nullptr) return fmt::format("is {} and has no scales", form_text(codes));
  const bool known = scales->dtype == at::kFloat8_e8m0fnu || scales->dtype == at::kByte || scales->dtype == at::kFloat;
  if (!known || scales->shape != scale_shape) {
    return fmt::format("of {} has scales {}, they should be F8_E8M0 or F32 {}", form_text(codes), form_text(*scales),
                       shape_text(scale_shape));
  }
  return {};
}

int64_t num_rows(const TensorInfo& info) { return info.shape.front(); }

}  // namespace

StoredWeights::StoredWeights(const std::filesystem::path& folder)
    : folder_(folder), config_(model::Config::load(folder)), files_(folder) {
  for (const std::string& name : files_.names()) add(name);
  fit_config();
}

void StoredWeights::add(const std::string& stored_name) {
  const std::optional<Translation> translation = to_native(stored_name);
  if (!translation) {
    unexpected_.push_back(stored_name);
    return;
  }
  if (translation->part == Part::copy) return;
  if (translation->native.starts_with("mtp.")) has_mtp_ = true;
  Found& found = found_[translation->native];
  std::string& place = translation->part == Part::scales ? found.scales : found.value;
  if (!place.empty()) twice_.push_back(fmt::format("{} (as {} and {})", translation->native, place, stored_name));
  if (translation->part != Part::scales) found.part = translation->part;
  place = stored_name;
}

void StoredWeights::fit_config() {
  lacks_mtp_ = config_.num_nextn_predict_layers > 0 && !has_mtp_;
  if (lacks_mtp_) config_.num_nextn_predict_layers = 0;
  if (config_.compressor_norm_f32) return;
  config_.compressor_norm_f32 = std::any_of(found_.begin(), found_.end(), [&](const auto& entry) {
    const std::string& stored = entry.second.value;
    return entry.first.ends_with("compressor.norm.weight") && !stored.empty() &&
           files_.stored(stored).dtype == at::kFloat;
  });
}

const StoredWeights::Found* StoredWeights::find(const std::string& native) const {
  const auto at = found_.find(native);
  return at == found_.end() ? nullptr : &at->second;
}

// What is wrong with the stored form of a tensor; empty when nothing is.
std::string StoredWeights::form_problem(const TensorInfo& info, const Found& found) const {
  const StoredTensor& value = files_.stored(found.value);
  const StoredTensor* scales = found.scales.empty() ? nullptr : &files_.stored(found.scales);
  if (info.stored_as == model::StoredAs::i64) {
    const bool fits = (value.dtype == at::kLong || value.dtype == at::kInt) && value.shape == info.shape;
    return fits ? "" : fmt::format("is {}, it should be I64 or I32 {}", form_text(value), shape_text(info.shape));
  }
  if (const std::optional<BlockFormat> format = code_format(value.dtype))
    return scaled_problem(info, value, scales, *format);
  if (!is_plain_float(value.dtype)) {
    return fmt::format("is {}; read are F32, BF16, F16, F8_E4M3 and packed I8", form_text(value));
  }
  if (value.shape != info.shape) return fmt::format("is {}, it should be {}", form_text(value), shape_text(info.shape));
  if (scales != nullptr) return fmt::format("is {}, but has scales {}", form_text(value), found.scales);
  return {};
}

void StoredWeights::check_one(const TensorInfo& info, Search& search) const {
  const Found* found = find(info.name);
  if (found == nullptr) return check_stack(info, search);
  search.used.insert(info.name);
  const std::optional<ExpertName> expert = expert_name(info.name);
  if (expert && find(expert->stack) != nullptr) {
    search.differences.wrong.push_back(
        fmt::format("{} is there alone and in {}", info.name, find(expert->stack)->value));
  } else if (found->value.empty()) {
    search.differences.missing.push_back(fmt::format("{} (its scales are there as {})", info.name, found->scales));
  } else if (const std::string problem = form_problem(info, *found); !problem.empty()) {
    search.differences.wrong.push_back(found->value + " " + problem);
  }
}

// A parameter that does not stand alone: an expert of a stack, or missing.
void StoredWeights::check_stack(const TensorInfo& info, Search& search) const {
  const std::optional<ExpertName> expert = expert_name(info.name);
  const Found* found = expert ? find(expert->stack) : nullptr;
  if (found == nullptr) {
    search.differences.missing.push_back(info.name);
    return;
  }
  if (!search.used.insert(expert->stack).second && expert->expert > 0) return;  // one look at a stack is enough
  const StoredTensor& stack = files_.stored(found->value);
  std::vector<int64_t> wanted = stack.shape;
  if (wanted.size() == 3)
    wanted = {stack.shape[0], info.shape[0] * (found->part == Part::gate_up_stack ? 2 : 1), info.shape[1]};
  if (!is_plain_float(stack.dtype) || stack.shape.size() != 3 || stack.shape != wanted ||
      stack.shape[0] <= expert->expert) {
    search.differences.wrong.push_back(fmt::format("{} is {}, each of its experts should be F32, BF16 or F16 {}",
                                                   found->value, form_text(stack), shape_text(wanted)));
  }
}

Differences StoredWeights::differences() const {
  Search search;
  model::Weights::describe(config_).visit_named(
      [&](const TensorInfo& info, const Tensor&) { check_one(info, search); });
  Differences& result = search.differences;
  result.unexpected = unexpected_;
  result.twice = twice_;
  for (const auto& [native, found] : found_) {
    const std::string& stored = found.value.empty() ? found.scales : found.value;
    if (!search.used.contains(native)) {
      result.unexpected.push_back(stored);
      if (!found.value.empty() && !found.scales.empty()) result.unexpected.push_back(found.scales);
    } else if (found.part != Part::value && files_.stored(stored).shape.size() == 3 &&
               files_.stored(stored).shape[0] != config_.n_routed_experts) {
      result.wrong.push_back(fmt::format("{} is {}, it should hold {} experts", stored,
                                         form_text(files_.stored(stored)), config_.n_routed_experts));
    }
  }
  for (auto* list : {&result.missing, &result.unexpected, &result.twice, &result.wrong})
    std::sort(list->begin(), list->end());
  return result;
}

void StoredWeights::check() const {
  const Differences found = differences();
  std::string text;
  append_list(text, "missing", found.missing);
  append_list(text, "unexpected", found.unexpected);
  append_list(text, "there twice", found.twice);
  append_list(text, "of another form", found.wrong);
  if (!text.empty()) {
    fail(Code::invalid_argument, "{}: the tensors do not fit config.json: {}", folder_.string(), text);
  }
}

StoredWeights::Place StoredWeights::place_of(const TensorInfo& info) const {
  if (const Found* found = find(info.name)) return {found, 0};
  const std::optional<ExpertName> expert = expert_name(info.name);
  const Found* const stack = expert ? find(expert->stack) : nullptr;
  CHECK(stack != nullptr, "{} was not checked", info.name);
  const int64_t halves = stack->part == Part::gate_up_stack ? 2 : 1;
  return {stack, (expert->expert * halves + (expert->up ? 1 : 0)) * num_rows(info)};
}

Form StoredWeights::form(const TensorInfo& info) const {
  const Found& found = *place_of(info).found;
  Form form;
  form.dtype = files_.stored(found.value).dtype;
  if (info.stored_as != model::StoredAs::i64) form.format = code_format(form.dtype);
  if (form.format) {
    const bool real = files_.stored(found.scales).dtype == at::kFloat;
    form.scale_dtype = real ? at::kFloat : at::kFloat8_e8m0fnu;
  }
  return form;
}

std::string StoredWeights::place(const TensorInfo& info) const {
  const std::string& stored = place_of(info).found->value;
  return fmt::format("{}: tensor {} ({})", files_.file_of(stored).string(), stored, info.name);
}

tensor::Quantised StoredWeights::read_codes(const TensorInfo& info, int64_t begin, int64_t count) const {
  const Found& found = *place_of(info).found;
  const BlockFormat format = *form(info).format;
  const int64_t block_rows = tensor::block_of(format).rows;
  CHECK(begin % block_rows == 0, "row {} of {} is inside a block", begin, info.name);
  const int64_t first = begin / block_rows, end = (begin + count + block_rows - 1) / block_rows;
  const Tensor scales = files_.read_rows(found.scales, first, end - first);
  return {files_.read_rows(found.value, begin, count).view(at::kByte),
          scales.scalar_type() == at::kFloat ? scales : scales.view(at::kByte), format};
}

Tensor StoredWeights::read_rows(const TensorInfo& info, int64_t begin, int64_t count) const {
  const Place place = place_of(info);
  Tensor value;
  if (form(info).format) {
    value = tensor::dequantise_blocks(read_codes(info, begin, count));
  } else {
    value = files_.read_rows(place.found->value, place.first_row + begin, count);
    if (info.stored_as == model::StoredAs::i64) return value.to(at::kLong);
    value = value.to(at::kFloat);
  }
  if (!at::isfinite(value).all().item<bool>()) {
    fail(Code::corruption, "{} holds a NaN or an infinity{}", this->place(info),
         place.found->scales.empty() ? "" : ", in its codes or its scales");
  }
  return value;
}

Tensor StoredWeights::read(const TensorInfo& info) const { return read_rows(info, 0, num_rows(info)).view(info.shape); }

}  // namespace checkpoint
