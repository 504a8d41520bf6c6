// What a model folder stores for each parameter, and whether it is all there.
#include "checkpoint/stored_weights.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

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

}  // namespace

struct StoredWeights::Problems {
  std::vector<std::string> missing, wrong;
  std::unordered_set<std::string> used;  // native names and names of stacks
};

StoredWeights::StoredWeights(const std::filesystem::path& folder) : folder_(folder), files_(folder) {
  for (const std::string& name : files_.names()) add(name);
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

bool StoredWeights::has_f32_compressor_norms() const {
  return std::any_of(found_.begin(), found_.end(), [&](const auto& entry) {
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

void StoredWeights::check_one(const TensorInfo& info, Problems& problems) const {
  const Found* found = find(info.name);
  const std::optional<ExpertName> expert = expert_name(info.name);
  if (found != nullptr) {
    problems.used.insert(info.name);
    if (expert && find(expert->stack) != nullptr) {
      problems.wrong.push_back(fmt::format("{} is there alone and in {}", info.name, find(expert->stack)->value));
    } else if (found->value.empty()) {
      problems.missing.push_back(fmt::format("{} (its scales are there as {})", info.name, found->scales));
    } else if (const std::string problem = form_problem(info, *found); !problem.empty()) {
      problems.wrong.push_back(found->value + " " + problem);
    }
    return;
  }
  found = expert ? find(expert->stack) : nullptr;
  if (found == nullptr) {
    problems.missing.push_back(info.name);
    return;
  }
  if (!problems.used.insert(expert->stack).second && expert->expert > 0) return;  // one look at a stack is enough
  const StoredTensor& stack = files_.stored(found->value);
  std::vector<int64_t> wanted = stack.shape;
  if (wanted.size() == 3)
    wanted = {stack.shape[0], info.shape[0] * (found->part == Part::gate_up_stack ? 2 : 1), info.shape[1]};
  if (!is_plain_float(stack.dtype) || stack.shape.size() != 3 || stack.shape != wanted ||
      stack.shape[0] <= expert->expert) {
    problems.wrong.push_back(fmt::format("{} is {}, each of its experts should be F32, BF16 or F16 {}", found->value,
                                         form_text(stack), shape_text(wanted)));
  }
}

void StoredWeights::check(const model::Weights& described) const {
  Problems problems;
  std::vector<std::string> unexpected = unexpected_;
  described.visit_named([&](const TensorInfo& info, const Tensor&) { check_one(info, problems); });
  const int64_t num_experts = described.config.n_routed_experts;
  for (const auto& [native, found] : found_) {
    const std::string& stored = found.value.empty() ? found.scales : found.value;
    if (!problems.used.contains(native)) {
      unexpected.push_back(stored);
    } else if (found.part != Part::value && files_.stored(stored).shape.size() == 3 &&
               files_.stored(stored).shape[0] != num_experts) {
      problems.wrong.push_back(
          fmt::format("{} is {}, it should hold {} experts", stored, form_text(files_.stored(stored)), num_experts));
    }
  }
  std::sort(unexpected.begin(), unexpected.end());
  std::string text;
  append_list(text, "missing", problems.missing);
  append_list(text, "unexpected", unexpected);
  append_list(text, "there twice", twice_);
  append_list(text, "of another form", problems.wrong);
  if (!text.empty()) {
    fail(Code::invalid_argument, "{}: the tensors do not fit config.json: {}", folder_.string(), text);
  }
}

Tensor StoredWeights::read_stack(const std::string& stored_name) {
  if (last_stack_name_ != stored_name) {
    last_stack_ = Tensor();  // free it first
    last_stack_ = files_.read(stored_name);
    last_stack_name_ = stored_name;
  }
  return last_stack_;
}

Tensor StoredWeights::read_part(const TensorInfo& info, const Found& found) {
  const ExpertName expert = *expert_name(info.name);
  const Tensor whole = read_stack(found.value).select(0, expert.expert);
  const Tensor part = found.part == Part::gate_up_stack ? whole.chunk(2, 0)[expert.up ? 1 : 0] : whole;
  return part.to(at::kFloat);
}

Tensor StoredWeights::read_whole(const Found& found) const {
  const Tensor value = files_.read(found.value);
  if (at::isIntegralType(value.scalar_type(), false) && found.scales.empty()) return value.to(at::kLong);
  const std::optional<BlockFormat> format = code_format(value.scalar_type());
  if (!format) return value.to(at::kFloat);
  const Tensor scales = files_.read(found.scales);
  const bool real = scales.scalar_type() == at::kFloat;
  return tensor::dequantise_blocks({value.view(at::kByte), real ? scales : scales.view(at::kByte), *format});
}

Tensor StoredWeights::read(const TensorInfo& info) {
  const Found* found = find(info.name);
  const bool stacked = found == nullptr;
  if (stacked) found = find(expert_name(info.name)->stack);
  CHECK(found != nullptr, "{} was not checked", info.name);
  const Tensor value = stacked ? read_part(info, *found) : read_whole(*found);
  if (value.is_floating_point() && !at::isfinite(value).all().item<bool>()) {
    fail(Code::corruption, "{}: tensor {} ({}) holds a NaN or an infinity{}", files_.file_of(found->value).string(),
         found->value, info.name, found->scales.empty() ? "" : ", in its codes or its scales");
  }
  return value;
}

}  // namespace checkpoint
