// Every parameter: equal, converted, or what kind of difference it is.
#include "compare/weight_difference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "compare/block_ratios.h"

namespace compare {
namespace {

using model::Profile;
using model::TensorInfo;
using tensor::BlockFormat;

constexpr double kSameBits = 1e-6;  // residual of a block whose values are those of the other times one number

// Both sides of one parameter, f32 (int64 for tables), in the shape of its info.
struct Pair {
  TensorInfo info;
  Tensor a, b;
};

Tensor in_shape_of(const TensorInfo& info, const Tensor& value) {
  std::vector<int64_t> shape = info.shape;
  if (info.stack > 0) shape.insert(shape.begin(), info.stack);
  return value.detach().reshape(shape);
}

// ---- Tables of experts by token.

using Row = std::vector<int64_t>;

std::vector<Row> rows_of(const Tensor& table_VA) {
  const Tensor host = table_VA.to(at::kCPU, at::kLong).contiguous();
  const int64_t* next = host.const_data_ptr<int64_t>();
  std::vector<Row> rows;
  for (int64_t v = 0; v < host.size(0); ++v, next += host.size(1)) {
    rows.emplace_back(next, next + host.size(1));
    std::sort(rows.back().begin(), rows.back().end());
  }
  return rows;
}

// Whether b is a with another number for each expert: to each expert of a belongs one of b that stands in the same
// rows.
bool renamed(const std::vector<Row>& a, const std::vector<Row>& b) {
  const auto places = [](const std::vector<Row>& rows) {
    std::map<int64_t, std::vector<size_t>> rows_of_expert;
    for (size_t v = 0; v < rows.size(); ++v) {
      for (const int64_t expert : rows[v]) rows_of_expert[expert].push_back(v);
    }
    std::vector<std::vector<size_t>> list;
    for (auto& [expert, its_rows] : rows_of_expert) list.push_back(std::move(its_rows));
    std::sort(list.begin(), list.end());
    return list;
  };
  return places(a) == places(b);
}

// The order inside a row means nothing.
std::optional<TensorDifference> table_difference(const Pair& pair) {
  std::vector<Row> a = rows_of(pair.a), b = rows_of(pair.b);
  size_t differing = 0, first = 0;
  for (size_t v = 0; v < a.size(); ++v) {
    if (a[v] == b[v]) continue;
    if (differing++ == 0) first = v;
  }
  if (differing == 0) return std::nullopt;
  TensorDifference found;
  found.name = pair.info.name;
  found.kind = WeightKind::table;
  found.relative = static_cast<double>(differing) / static_cast<double>(a.size());
  found.text = fmt::format("{} of {} rows differ, first that of token {}", differing, a.size(), first);
  const bool other_names = renamed(a, b);
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  if (a == b) {
    found.kind = WeightKind::rows_permuted;
    found.text += "; they are the same rows in another order (shuffled)";
  } else if (other_names) {
    found.kind = WeightKind::experts_renamed;
    found.text += "; it is the same table with other numbers for the experts";
  }
  return found;
}

// ---- Weights in blocks.

std::string range_text(double low, double high) {
  return low == high ? fmt::format("{:g}", low) : fmt::format("{:g} to {:g}", low, high);
}

// The same codes with other scales: every block is a multiple of the other, not all by 1.
std::optional<TensorDifference> scale_difference(const Pair& pair, BlockFormat format) {
  int64_t scaled = 0, blocks = 0;
  double low = INFINITY, high = 0;
  for (const BlockRatio& block : block_ratios(pair.a, pair.b, format)) {
    if (block.zero) continue;
    ++blocks;
    if (block.residual > kSameBits || block.ratio <= 0) return std::nullopt;
    if (std::abs(block.ratio - 1) <= kSameBits) continue;
    ++scaled;
    low = std::min(low, block.ratio);
    high = std::max(high, block.ratio);
  }
  if (scaled == 0) return std::nullopt;
  return TensorDifference{pair.info.name, WeightKind::scales, -1,
                          fmt::format("the codes are equal, the scales of {} of {} blocks differ (B is {} times A)",
                                      scaled, blocks, range_text(low, high))};
}

// A byte e read as the number e, where 2^(e - 127) was meant, makes a block larger by this.
double ratio_of_byte(int e) { return std::ldexp(static_cast<double>(e), 127 - e); }

struct ByteReading {
  int low = 255, high = 0;  // exponent bytes
  int64_t blocks = 0;
};

// Whether `read` is `right` with every scale's byte taken for its value: the ratio of each block belongs to a byte, and
// that byte is a scale under which `right` fits the format. `slack`: roundings of either side, relative.
std::optional<ByteReading> bytes_as_numbers(const Tensor& right, const Tensor& read, BlockFormat format, double slack) {
  const double most = format == BlockFormat::e4m3 ? 448 : 6, least = format == BlockFormat::e4m3 ? 8 : 0.5;
  ByteReading found;
  for (const BlockRatio& block : block_ratios(right, read, format)) {
    if (block.zero) continue;
    if (block.residual > slack || block.ratio <= 0) return std::nullopt;
    int best = 1;
    for (int e = 2; e < 255; ++e) {
      if (std::abs(std::log(ratio_of_byte(e) / block.ratio)) < std::abs(std::log(ratio_of_byte(best) / block.ratio)))
        best = e;
    }
    const double code = block.amax_a / std::ldexp(1.0, best - 127);
    if (std::abs(ratio_of_byte(best) / block.ratio - 1) > slack || code > most * (1 + slack) || code < least) {
      return std::nullopt;
    }
    found.low = std::min(found.low, best);
    found.high = std::max(found.high, best);
    ++found.blocks;
  }
  if (found.blocks == 0) return std::nullopt;
  return found;
}

// What the formats of the two sides may have rounded away, relative to a block.
double slack_of(const Profile& profile, const TensorInfo& info) {
  const auto format = model::run_format(info, profile);
  if (!format) return profile.round_bf16 ? 0x1p-7 : 1e-5;
  return *format == BlockFormat::e4m3 ? 0.06 : 0.25;
}

std::optional<TensorDifference> byte_difference(const Pair& pair, BlockFormat format, double slack) {
  for (int wrong : {1, 0}) {
    const auto found =
        wrong == 1 ? bytes_as_numbers(pair.a, pair.b, format, slack) : bytes_as_numbers(pair.b, pair.a, format, slack);
    if (!found) continue;
    const std::string bytes =
        found->low == found->high ? std::to_string(found->low) : fmt::format("{} to {}", found->low, found->high);
    return TensorDifference{pair.info.name, WeightKind::e8m0_as_number, wrong,
                            fmt::format("each of {} blocks is larger by its scale byte e (here {}) over 2^(e - 127)",
                                        found->blocks, bytes)};
  }
  return std::nullopt;
}

double relative_gap(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  const double size = std::max(x.norm().item<double>(), y.norm().item<double>());
  return size > 0 ? (x - y).norm().item<double>() / size : 0;
}

std::vector<BlockFormat> block_formats(const TensorInfo& info) {
  if (!info.is_quantised()) return {};
  if (info.shard == model::ShardAxis::expert) return {BlockFormat::e2m1, BlockFormat::e4m3};
  return {BlockFormat::e4m3};
}

// ---- One parameter.

// f32, bf16, fp8, fp8_fp4.
int coarseness(const Profile& profile) {
  return (profile.round_bf16 ? 1 : 0) + (profile.quantise ? 1 : 0) + (profile.fp4_experts ? 1 : 0);
}

class Comparer {
 public:
  Comparer(const Profile& a, const Profile& b) : a_(a), b_(b) {}

  void see(const TensorInfo& info, const Tensor& a, const Tensor& b) {
    Pair pair{info, in_shape_of(info, a), in_shape_of(info, b)};
    ++result_.tensors;
    if (at::equal(pair.a, pair.b)) {
      ++result_.equal;
      return;
    }
    if (info.stored_as == model::StoredAs::i64) {
      if (auto found = table_difference(pair))
        result_.differences.push_back(std::move(*found));
      else
        ++result_.equal;
      return;
    }
    const bool converted = convert(pair);
    if (converted && at::equal(pair.a, pair.b)) {
      ++result_.converted;
      return;
    }
    TensorDifference found = describe(pair, converted);
    found.relative = relative_gap(pair.a, pair.b);
    result_.differences.push_back(std::move(found));
  }

  WeightComparison take() { return std::move(result_); }

 private:
  // Makes of the finer side's numbers what the coarser side should hold. False: neither follows from the other.
  bool convert(Pair& pair) const {
    const int a = coarseness(a_), b = coarseness(b_);
    if (a == b) return true;
    const bool a_is_finer = a < b;
    Tensor& finer = a_is_finer ? pair.a : pair.b;
    const Profile& coarse = a_is_finer ? b_ : a_;
    if (model::run_format(pair.info, a_is_finer ? a_ : b_))
      return model::run_format(pair.info, a_) == model::run_format(pair.info, b_);
    finer = in_shape_of(pair.info, model::run_value(pair.info, model::published_value(pair.info, finer), coarse));
    return true;
  }

  TensorDifference describe(const Pair& pair, bool converted) const {
    const double slack = std::max(slack_of(a_, pair.info), slack_of(b_, pair.info));
    for (const BlockFormat format : block_formats(pair.info)) {
      if (auto found = byte_difference(pair, format, slack)) return *found;
    }
    for (const BlockFormat format : block_formats(pair.info)) {
      if (auto found = scale_difference(pair, format)) return *found;
    }
    const int64_t differing = at::ne(pair.a, pair.b).sum().item<int64_t>();
    const std::string text = fmt::format("{} of {} numbers differ", differing, pair.a.numel());
    if (!converted && relative_gap(pair.a, pair.b) < 2 * slack)
      return {pair.info.name, WeightKind::other_format, -1, text};
    return {pair.info.name, WeightKind::values, -1, text};
  }

  const Profile &a_, &b_;
  WeightComparison result_;
};

bool of_mtp(const std::string& name) { return name.starts_with("mtp."); }

struct Named {
  TensorInfo info;
  const Tensor* tensor = nullptr;
  const model::Matrix* matrix = nullptr;

  Tensor value() const { return tensor != nullptr ? *tensor : matrix->values(); }
  bool defined() const { return tensor != nullptr ? tensor->defined() : matrix->defined(); }
};

std::vector<Named> parameters_of(const model::RunWeights& weights) {
  std::vector<Named> all;
  const_cast<model::RunWeights&>(weights).visit(  // looks only
      {[&](const TensorInfo& info, Tensor& tensor) {
         all.push_back({info, &tensor, nullptr});
       },
       [&](const TensorInfo& info, model::Matrix& matrix) {
         all.push_back({info, nullptr, &matrix});
       }});
  return all;
}

}  // namespace

WeightComparison compare_weights(const Parameters& a, const Parameters& b,
                                 const std::function<bool(const std::string& name)>& wanted, const Watch& watch) {
  const at::NoGradGuard no_grad;
  std::map<std::string, Named> others;
  for (const Named& one : parameters_of(b.weights)) others[one.info.name] = one;
  const std::vector<Named> all = parameters_of(a.weights);
  Comparer comparer(a.profile, b.profile);
  for (size_t i = 0; i < all.size(); ++i) {
    watch.update("compare weights", static_cast<int64_t>(i), static_cast<int64_t>(all.size()));
    const Named& one = all[i];
    if (of_mtp(one.info.name) || (wanted && !wanted(one.info.name))) continue;
    const auto other = others.find(one.info.name);
    if (other == others.end() || !one.defined() || !other->second.defined()) continue;
    comparer.see(one.info, one.value(), other->second.value());
  }
  return comparer.take();
}

void take_parameters(model::RunWeights& to, const model::RunWeights& from,
                     const std::function<bool(const std::string& name)>& wanted) {
  std::map<std::string, Named> values;
  for (const Named& one : parameters_of(from)) values[one.info.name] = one;
  to.visit({[&](const TensorInfo& info, Tensor& tensor) {
              const auto at = values.find(info.name);
              if (at != values.end() && wanted(info.name)) tensor = *at->second.tensor;
            },
            [&](const TensorInfo& info, model::Matrix& matrix) {
              const auto at = values.find(info.name);
              if (at != values.end() && wanted(info.name)) matrix = *at->second.matrix;
            }});
}

}  // namespace compare
