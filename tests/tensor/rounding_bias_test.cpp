// Rounding has no bias: not towards zero, not away from it, not to one side; in codes and through blocks with scales.
#include <gtest/gtest.h>

#include <cmath>

#include "tensor/formats/block_scale.h"
#include "tensor/formats/e2m1.h"
#include "tensor/formats/e4m3.h"
#include "tensor/formats/e4m3_fnuz.h"
#include "tensor/formats/e5m2.h"
#include "tensor/golden.h"

namespace {

using tensor::BlockFormat;
using tensor::Tensor;

struct SmallFloat {
  const char* name;
  int mantissa_bits;
  int64_t largest_code;
  int num_normal_binades;  // above them the last binade may be cut short
  Tensor (*encode)(const Tensor&);
  Tensor (*decode)(const Tensor&);
};
constexpr SmallFloat kFormats[] = {
    {"e4m3", 3, 0x7e, 14, tensor::e4m3_encode, tensor::e4m3_decode},
    {"e4m3_fnuz", 3, 0x7f, 14, tensor::e4m3_fnuz_encode, tensor::e4m3_fnuz_decode},
    {"e5m2", 2, 0x7b, 29, tensor::e5m2_encode, tensor::e5m2_decode},
    {"e2m1", 1, 0x7, 2, tensor::e2m1_codes, tensor::e2m1_values},
};

Tensor uniform(double low, double high, int64_t count, uint64_t seed) {
  return at::rand({count}, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble)
      .mul_(high - low)
      .add_(low)
      .to(at::kFloat);
}

// Errors of one sign of input only, so that a rule that always shortens (truncation) shows as well as one that always
// goes up. The error of a value that lies uniformly in a cell of width h is uniform in [-h/2, h/2]: mean 0, standard
// deviation h / sqrt(12); over n values the mean lies within 5 h / sqrt(12 n), but for one run in 1.7 million.
TEST(RoundingBias, TheMeanErrorOfPositiveValuesIsZeroInEveryBinade) {
  constexpr int64_t kCount = 1 << 16;
  for (const SmallFloat& format : kFormats) {
    const Tensor first = format.decode(at::full({1}, 1 << format.mantissa_bits, at::kByte));
    const double smallest_normal = first.item<double>();
    for (int binade = -1; binade < format.num_normal_binades; ++binade) {  // -1: the subnormals
      const double low = binade < 0 ? 0 : std::ldexp(smallest_normal, binade),
                   high = std::ldexp(smallest_normal, std::max(binade, -1) + 1);
      const double step = std::ldexp(smallest_normal, std::max(binade, 0) - format.mantissa_bits);
      const Tensor values = uniform(low, high, kCount, static_cast<uint64_t>(binade + 2));
      const Tensor error = (format.decode(format.encode(values)).to(at::kDouble) - values.to(at::kDouble));
      const double mean = error.mean().item<double>();
      EXPECT_LE(std::fabs(mean), 5 * step / std::sqrt(12.0 * kCount)) << format.name << ", binade " << binade;
      EXPECT_LE(error.abs().max().item<double>(), step / 2) << format.name << ", binade " << binade;
      // The other side of the same promise: truncation would be caught.
      const Tensor truncated = (values.to(at::kDouble) / step).floor() * step - values.to(at::kDouble);
      EXPECT_GT(std::fabs(truncated.mean().item<double>()), 100 * step / std::sqrt(12.0 * kCount));
    }
  }
}

// A value exactly between two codes goes to the even one: as often up as down, so the errors of the ties of
// neighbouring cells cancel exactly.
TEST(RoundingBias, TiesOfNeighbouringCellsCancelExactly) {
  for (const SmallFloat& format : kFormats) {
    const Tensor codes = at::arange(0, format.largest_code, at::kInt).to(at::kByte);
    const Tensor low = format.decode(codes).to(at::kDouble), high = format.decode(codes + 1).to(at::kDouble);
    const Tensor ties = (low + high) / 2;
    for (const double sign : {1.0, -1.0}) {
      const Tensor error =
          (format.decode(format.encode((ties * sign).to(at::kFloat))).to(at::kDouble) - ties * sign) / (high - low);
      EXPECT_TRUE((error.abs() == 0.5).all().item<bool>()) << format.name;
      const Tensor alternating = error.slice(0, 1) + error.slice(0, 0, -1);
      EXPECT_TRUE((alternating == 0).all().item<bool>()) << format.name;
    }
  }
}

// Through blocks with scales, input symmetric about 0: the mean error lies within 5 standard deviations of the mean of
// n such errors.
TEST(RoundingBias, QuantisedWeightsDoNotShift) {
  const Tensor weight = at::randn({1024, 1024}, at::make_generator<at::CPUGeneratorImpl>(11), at::kFloat);
  const auto n = static_cast<double>(weight.numel());
  for (const BlockFormat format : {BlockFormat::e4m3, BlockFormat::e2m1}) {
    const Tensor error = tensor::dequantise_blocks(tensor::quantise_blocks(weight, format)).to(at::kDouble) - weight;
    const double deviation = error.std(false).item<double>();
    EXPECT_LE(std::fabs(error.mean().item<double>()), 5 * deviation / std::sqrt(n));
    EXPECT_GT(deviation, 0.005);  // something was rounded
  }
}

}  // namespace
