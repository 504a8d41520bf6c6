// The bounds in f64, piece by piece.
#include "checkpoint/verify.h"

#include <cmath>

#include "base/error.h"
#include "checkpoint/pieces.h"

namespace checkpoint {
namespace {

using model::TensorInfo;
using tensor::BlockFormat;
using tensor::Tensor;

constexpr double kBf16Half = 0x1p-8;  // of a value: half a step of 8 significant bits
constexpr double kBf16SmallestHalf = 0x1p-134;
constexpr double kSmallestNormal = 0x1p-126;
constexpr double kSmallestScale = 0x1p-127;

// The largest difference that rounding to bf16 makes; none for a zero.
Tensor bf16_bound(const Tensor& magnitude) {
  return (magnitude * kBf16Half).add_(kBf16SmallestHalf).masked_fill_(magnitude == 0, 0);
}

Tensor quantised_bound(const Tensor& magnitude, BlockFormat format) {
  const bool e4m3 = format == BlockFormat::e4m3;
  const double top = e4m3 ? 448 : 6, half = e4m3 ? 0x1p-4 : 0x1p-2, smallest_half = e4m3 ? 0x1p-10 : 0x1p-2;
  const Tensor first = bf16_bound(magnitude), rounded = magnitude + first;
  const Tensor amax = tensor::block_amax(rounded, format);
  // A block of zeros has no error; any other has the smallest power of two that is enough, or the smallest there is.
  const Tensor scale = (amax * (2 / top)).clamp_min(kSmallestScale).masked_fill(amax == 0, 0);
  const Tensor step = tensor::spread_over_blocks(scale, format, magnitude.size(-2), magnitude.size(-1));
  return first + at::maximum(rounded * half, step * smallest_half);
}

Tensor bound(const Tensor& magnitude, Loss loss, const Form& from, const Form& to) {
  switch (loss) {
    case Loss::none:
      if (from.format && !to.format && to.dtype == at::kBFloat16)
        return at::full_like(magnitude, kBf16SmallestHalf).masked_fill_(magnitude >= kSmallestNormal, 0);
      return at::zeros_like(magnitude);
    case Loss::bf16:
      return bf16_bound(magnitude);
    case Loss::quantised:
      return quantised_bound(magnitude, *to.format);
  }
  return {};
}

// Sums over all tensors of a kind.
struct Sums {
  int64_t tensors = 0;
  double squared_error = 0, squared_value = 0;

  LossFigures figures() const { return {tensors, squared_value > 0 ? std::sqrt(squared_error / squared_value) : 0}; }
};

class Comparison {
 public:
  Comparison(const StoredWeights& before, const StoredWeights& after) : before_(before), after_(after) {}

  // Rows of one parameter.
  void piece(const TensorInfo& info, int64_t first, int64_t count) {
    const Tensor a = before_.read_rows(info, first, count), b = after_.read_rows(info, first, count);
    const Form from = before_.form(info), to = after_.form(info);
    const Loss loss = expected_loss(from, to);
    if (loss == Loss::none && at::equal(a, b)) return;
    const Tensor wide = a.to(at::kDouble), error = (b.to(at::kDouble) - wide).abs_();
    const Tensor allowed = bound(wide.abs(), loss, from, to);
    const Tensor bad = error > allowed;
    if (bad.any().item<bool>()) refuse(info, first, wide, b.to(at::kDouble), allowed, bad);
    Sums& sum = sums(loss);
    sum.squared_error += error.square().sum().item<double>();
    sum.squared_value += wide.square().sum().item<double>();
  }
  void finish(const TensorInfo& info) { ++sums(expected_loss(before_.form(info), after_.form(info))).tensors; }

  Verified result() const { return {equal_.figures(), rounded_.figures(), quantised_.figures()}; }

 private:
  Sums& sums(Loss loss) { return loss == Loss::none ? equal_ : loss == Loss::bf16 ? rounded_ : quantised_; }

  [[noreturn]] void refuse(const TensorInfo& info, int64_t first, const Tensor& a, const Tensor& b,
                           const Tensor& allowed, const Tensor& bad) const {
    const auto at = bad.reshape({-1}).nonzero()[0].item<int64_t>();
    const int64_t columns = bad.dim() < 2 ? 1 : bad.size(-1);
    const auto value = [&](const Tensor& values) { return values.reshape({-1})[at].item<double>(); };
    base::fail(base::Code::corruption,
               "{}: row {}, column {} is {:.9g}, in {} it is {:.9g}: they may differ by {:.3g}, no more",
               after_.place(info), first + at / columns, at % columns, value(b), before_.place(info), value(a),
               value(allowed));
  }

  const StoredWeights &before_, &after_;
  Sums equal_, rounded_, quantised_;
};

}  // namespace

Loss expected_loss(const Form& from, const Form& to) {
  if (to.format) {
    const bool same = from.format == to.format && from.scale_dtype == to.scale_dtype;
    const bool wider = from.format == BlockFormat::e2m1 && to.format == BlockFormat::e4m3;
    return same || wider ? Loss::none : Loss::quantised;
  }
  if (to.dtype != at::kBFloat16) return Loss::none;
  const bool narrow = from.format ? from.scale_dtype == at::kFloat8_e8m0fnu : from.dtype == at::kBFloat16;
  return narrow ? Loss::none : Loss::bf16;
}

Verified verify(const StoredWeights& before, const StoredWeights& after, const VerifyProgress& progress) {
  Comparison comparison(before, after);
  int64_t done = 0, total = 0;
  bool complete = true;
  const model::Weights described = model::Weights::describe(before.config());
  described.visit_named([&](const TensorInfo& info, const Tensor&) { total += num_values(info); });
  described.visit_named([&](const TensorInfo& info, const Tensor&) {
    complete = complete && for_each_piece(info, [&](int64_t first, int64_t count) {
                 comparison.piece(info, first, count);
                 done += count * (num_values(info) / info.shape.front());
                 return progress(done, total);
               });
    if (complete) comparison.finish(info);
  });
  Verified result = comparison.result();
  result.complete = complete;
  return result;
}

}  // namespace checkpoint
