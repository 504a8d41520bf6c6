// Activation simulation and straight-through rounding: golden values, kernels against definitions, gradients.
#include "kernels/simulate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/expect_error.h"
#include "kernels/op_checks.h"
#include "kernels/reference/simulate.h"
#include "tensor/golden.h"

namespace {

using tensor::BlockFormat;
using tensor::Tensor;
using test::expect_error;
using test::normal;

at::Generator seeded(uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

constexpr BlockFormat kFormats[] = {BlockFormat::e4m3, BlockFormat::e2m1};

// Magnitudes from subnormal to 1e30 side by side, both zeros, exact codes and ties.
Tensor hard_activations(const std::vector<int64_t>& shape, uint64_t seed) {
  Tensor values = normal(shape, seed) * at::exp(normal({shape[0], 1}, seed + 1) * 20);
  const Tensor pick = at::randint(0, 12, shape, seeded(seed + 2), at::kInt);
  values.masked_fill_(pick == 0, 0.0f).masked_fill_(pick == 1, -0.0f).masked_fill_(pick == 2, 1e-41f);
  const Tensor coarse = at::round(values * 8) / 8;  // many ties
  return at::where(pick >= 10, coarse, values).contiguous();
}

void expect_simulated(const std::vector<float>& values, const std::vector<float>& wanted, int64_t group,
                      BlockFormat format) {
  const Tensor input = at::tensor(values);
  EXPECT_TRUE(at::equal(kernels::simulate_groups(input, group, format), at::tensor(wanted)));
  EXPECT_TRUE(at::equal(kernels::reference::simulate_groups(input, group, format), at::tensor(wanted)));
}

TEST(SimulateGroups, GoldenValuesOfTheSpec) {  // appendix B
  expect_simulated({3.0f, 1.0f, 0.3f}, {3.0f, 1.0f, 0.3125f}, 64, BlockFormat::e4m3);
  expect_simulated({3.5f}, {3.5f}, 64, BlockFormat::e4m3);
  expect_simulated({3.515625f}, {3.5f}, 64, BlockFormat::e4m3);
  expect_simulated({0, 0}, {0, 0}, 64, BlockFormat::e4m3);
  expect_simulated({3.0f, 1.25f, 1.3f}, {3.0f, 1.0f, 1.5f}, 32, BlockFormat::e2m1);
  expect_simulated({3.1f, 0.5f}, {3.0f, 0.5f}, 32, BlockFormat::e2m1);  // scale 1
}

TEST(SimulateGroups, FloorsKeepTheScaleOfTinyGroups) {  // spec 6.6: 1e-4 gives 2^-22, the smallest step is 2^-31
  expect_simulated({std::ldexp(3.0f, -31)}, {std::ldexp(3.0f, -31)}, 64, BlockFormat::e4m3);
  expect_simulated({std::ldexp(1.0f, -32)}, {0}, 64, BlockFormat::e4m3);
  expect_simulated({std::ldexp(1.0f, -127)}, {std::ldexp(1.0f, -127)}, 32, BlockFormat::e2m1);
  expect_simulated({std::ldexp(1.0f, -128)}, {0}, 32, BlockFormat::e2m1);
}

TEST(SimulateGroups, FastPathEqualsTheTensorOperationsToTheBit) {
  uint64_t seed = 100;
  for (const BlockFormat format : kFormats) {
    for (const int64_t columns : {1, 3, 31, 32, 48, 64, 127, 128, 129, 300}) {
      for (const int64_t group : {1, 7, 32, 64, 128}) {
        const Tensor values = hard_activations({37, columns}, seed += 3);
        const Tensor fast = kernels::simulate_groups(values, group, format);
        ASSERT_TRUE(test::same_bits(fast, kernels::reference::simulate_groups(values, group, format)))
            << columns << " by " << group;
      }
    }
  }
}

TEST(SimulateGroups, ThreadsShareTheWorkWithoutChangingIt) {
  const Tensor values = hard_activations({700, 300}, 50);
  test::for_thread_counts([&] {
    for (const BlockFormat format : kFormats) {
      for (const int64_t group : {32, 64, 300}) {
        const Tensor shared = kernels::simulate_groups(values, group, format);
        EXPECT_TRUE(test::same_bits(shared, kernels::reference::simulate_groups(values, group, format)));
      }
    }
    EXPECT_TRUE(test::same_bits(kernels::round_bf16(values), values.to(at::kBFloat16).to(at::kFloat)));
  });
}

TEST(SimulateGroups, EveryBf16ValueBesideALargerOne) {
  const Tensor bits = at::bitwise_left_shift(at::arange(0x10000, at::kInt), 16);
  const Tensor all = bits.view(at::kFloat);
  const Tensor finite = all.masked_select(all.isfinite());
  for (const BlockFormat format : kFormats) {
    for (const int64_t group : {1, 2, 128}) {
      const Tensor fast = kernels::simulate_groups(finite, group, format);
      ASSERT_TRUE(test::same_bits(fast, kernels::reference::simulate_groups(finite, group, format)));
    }
  }
}

TEST(SimulateGroups, AGroupWithANonFiniteValueIsNanThroughout) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    for (const BlockFormat format : kFormats) {
      Tensor values = at::ones({2, 64});
      values[1][3] = bad;
      for (const Tensor& result :
           {kernels::simulate_groups(values, 32, format), kernels::reference::simulate_groups(values, 32, format)}) {
        EXPECT_EQ(result.isnan().sum().item<int64_t>(), 32);
        EXPECT_TRUE(result[1].slice(0, 0, 32).isnan().all().item<bool>());
      }
    }
  }
}

TEST(SimulateGroups, BelongsToWholeBlocksOfOneRow) {
  const Tensor values = normal({5, 256}, 9);
  const Tensor weight_rows =
      dequantise_blocks(tensor::quantise_blocks(values.view({40, 32}), BlockFormat::e2m1)).view({5, 256});
  EXPECT_TRUE(at::equal(kernels::simulate_groups(values, 32, BlockFormat::e2m1), weight_rows));
}

TEST(SimulateGroups, StridedInputsAndEmptyOnes) {
  const Tensor values = normal({64, 96}, 10);
  const Tensor turned = kernels::simulate_groups(values.t(), 32, BlockFormat::e4m3);
  EXPECT_TRUE(turned.is_contiguous());
  EXPECT_TRUE(at::equal(turned, kernels::simulate_groups(values.t().contiguous(), 32, BlockFormat::e4m3)));
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{0, 96}, {3, 0}}) {
    EXPECT_EQ(kernels::simulate_groups(at::empty(shape), 32, BlockFormat::e4m3).sizes().vec(), shape);
    EXPECT_EQ(kernels::round_bf16(at::empty(shape)).sizes().vec(), shape);
  }
}

TEST(SimulateGroups, OtherTypesRunTheDefinition) {
  const Tensor values = normal({8, 96}, 21);
  for (const BlockFormat format : kFormats) {
    const Tensor wide = kernels::simulate_groups(values.to(at::kDouble), 32, format);
    EXPECT_EQ(wide.scalar_type(), at::kDouble);
    EXPECT_TRUE(at::equal(wide.to(at::kFloat), kernels::simulate_groups(values, 32, format)));
  }
  EXPECT_TRUE(at::equal(kernels::round_bf16(values.to(at::kDouble)).to(at::kFloat), kernels::round_bf16(values)));
}

TEST(RoundBf16, EveryBf16WithEveryKindOfRestEqualsTorch) {
  const Tensor high = at::bitwise_left_shift(at::arange(0x10000, at::kInt), 16);
  for (const int rest : {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff}) {
    const Tensor values = high.bitwise_or(rest).view(at::kFloat);
    const Tensor rounded = kernels::round_bf16(values), torchs = values.to(at::kBFloat16).to(at::kFloat);
    const Tensor numbers = values.isnan().logical_not();
    EXPECT_TRUE(at::equal(rounded.isnan(), values.isnan()));
    EXPECT_TRUE(test::same_bits(rounded.masked_select(numbers), torchs.masked_select(numbers)));
  }
}

TEST(RoundBf16, GradientPassesUnchanged) {
  const Tensor values = normal({7, 5}, 11).requires_grad_();
  const Tensor weights = normal({7, 5}, 12);
  (kernels::round_bf16(values) * weights).sum().backward();
  EXPECT_TRUE(at::equal(values.grad(), weights));
}

TEST(SimulateGroups, StraightThroughGradientPassesUnchanged) {
  for (const BlockFormat format : kFormats) {
    const Tensor values = normal({6, 50}, 13).requires_grad_();
    const Tensor weights = normal({6, 50}, 14);
    const Tensor simulated = kernels::simulate_groups(values, 32, format);
    EXPECT_TRUE(at::equal(simulated, kernels::simulate_groups(values, 32, format)));
    (simulated * weights).sum().backward();
    EXPECT_TRUE(at::equal(values.grad(), weights));
  }
}

// They sum in other orders, so a coefficient that falls on the border between two codes may go either way; that is
// rare. A group's scale is below a third of its largest magnitude, the widest step of its grid two scales.
TEST(Hadamard, ButterfliesAndMatrixDifferByOneStepOfTheGridAtMost) {
  for (const int64_t dim : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
    const Tensor values = normal({50, dim}, 300 + static_cast<uint64_t>(dim));
    const Tensor fast = kernels::hadamard_e2m1(values), wanted = kernels::reference::hadamard_e2m1(values);
    ASSERT_EQ(fast.sizes(), wanted.sizes());
    const Tensor apart = (fast - wanted).abs();
    EXPECT_LE(apart.max().item<float>(), wanted.abs().max().item<float>() * 2 / 3) << dim;
    EXPECT_LE((apart > 0).sum().item<int64_t>(), values.numel() / 1000 + 1) << dim;
  }
}

// Small whole numbers: every sum is exact in any order.
TEST(Hadamard, EqualsTheMatrixToTheBitWhereSumsAreExact) {
  for (const int64_t dim : {1, 2, 4, 8, 16, 64, 128, 512}) {
    const Tensor values = at::randint(-8, 9, {20, dim}, seeded(400), at::kFloat);
    EXPECT_TRUE(at::equal(kernels::hadamard_e2m1(values), kernels::reference::hadamard_e2m1(values))) << dim;
  }
}

TEST(Hadamard, RowsAreIndependentOfEachOtherAndOfThreads) {
  const Tensor values = normal({600, 128}, 500);
  const Tensor all = kernels::hadamard_e2m1(values);
  test::for_thread_counts([&] { EXPECT_TRUE(test::same_bits(kernels::hadamard_e2m1(values), all)); });
  EXPECT_TRUE(test::same_bits(kernels::hadamard_e2m1(values[7].unsqueeze(0))[0], all[7]));
}

TEST(Hadamard, AnotherDimThanAPowerOfTwoIsRefused) {
  expect_error(base::Code::invalid_argument, {"power of two", "96"}, [] { kernels::hadamard_e2m1(at::ones({2, 96})); });
}

TEST(Hadamard, HasNoGradient) {
  EXPECT_FALSE(kernels::hadamard_e2m1(at::ones({2, 8}).requires_grad_()).requires_grad());
}

TEST(RoundBf16, WithoutGradientNoGraphIsBuilt) {
  EXPECT_FALSE(kernels::round_bf16(at::ones({3})).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(kernels::round_bf16(at::ones({3}).requires_grad_()).requires_grad());
}

}  // namespace
