// Activation simulation and straight-through rounding: golden values, fast path against definition, gradients.
#include "tensor/round.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tensor/golden.h"

namespace {

using tensor::BlockFormat;
using tensor::Tensor;

constexpr BlockFormat kFormats[] = {BlockFormat::e4m3, BlockFormat::e2m1};

at::Generator seeded(uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

// Magnitudes from subnormal to 1e30 side by side, both zeros, exact codes and ties.
Tensor hard_activations(const std::vector<int64_t>& shape, uint64_t seed) {
  Tensor values = at::randn(shape, seeded(seed)) * at::exp(at::randn({shape[0], 1}, seeded(seed + 1)) * 20);
  const Tensor pick = at::randint(0, 12, shape, seeded(seed + 2), at::kInt);
  values.masked_fill_(pick == 0, 0.0f).masked_fill_(pick == 1, -0.0f).masked_fill_(pick == 2, 1e-41f);
  const Tensor coarse = at::round(values * 8) / 8;  // many ties
  return at::where(pick >= 10, coarse, values).contiguous();
}

void expect_simulated(const std::vector<float>& values, const std::vector<float>& wanted, int64_t group,
                      BlockFormat format) {
  const Tensor input = at::tensor(values);
  EXPECT_TRUE(at::equal(tensor::simulate_groups(input, group, format), at::tensor(wanted)));
  EXPECT_TRUE(at::equal(tensor::simulate_groups_reference(input, group, format), at::tensor(wanted)));
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
        const Tensor fast = tensor::simulate_groups(values, group, format);
        ASSERT_TRUE(test::same_bits(fast, tensor::simulate_groups_reference(values, group, format)))
            << columns << " by " << group;
      }
    }
  }
}

TEST(SimulateGroups, ThreadsShareTheWorkWithoutChangingIt) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  const Tensor values = hard_activations({700, 300}, 50);
  for (const BlockFormat format : kFormats) {
    for (const int64_t group : {32, 64, 300}) {
      const Tensor shared = tensor::simulate_groups(values, group, format);
      EXPECT_TRUE(test::same_bits(shared, tensor::simulate_groups_reference(values, group, format)));
    }
  }
  EXPECT_TRUE(test::same_bits(tensor::round_bf16(values), values.to(at::kBFloat16).to(at::kFloat)));
  at::set_num_threads(before);
}

TEST(SimulateGroups, EveryBf16ValueBesideALargerOne) {
  const Tensor bits = at::bitwise_left_shift(at::arange(0x10000, at::kInt), 16);
  const Tensor all = bits.view(at::kFloat);
  const Tensor finite = all.masked_select(all.isfinite());
  for (const BlockFormat format : kFormats) {
    for (const int64_t group : {1, 2, 128}) {
      const Tensor fast = tensor::simulate_groups(finite, group, format);
      ASSERT_TRUE(test::same_bits(fast, tensor::simulate_groups_reference(finite, group, format)));
    }
  }
}

TEST(SimulateGroups, AGroupWithANonFiniteValueIsNanThroughout) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    for (const BlockFormat format : kFormats) {
      Tensor values = at::ones({2, 64});
      values[1][3] = bad;
      for (const Tensor& result :
           {tensor::simulate_groups(values, 32, format), tensor::simulate_groups_reference(values, 32, format)}) {
        EXPECT_EQ(result.isnan().sum().item<int64_t>(), 32);
        EXPECT_TRUE(result[1].slice(0, 0, 32).isnan().all().item<bool>());
      }
    }
  }
}

TEST(SimulateGroups, BelongsToWholeBlocksOfOneRow) {
  const Tensor values = at::randn({5, 256}, seeded(9));
  const Tensor weight_rows =
      dequantise_blocks(tensor::quantise_blocks(values.view({40, 32}), BlockFormat::e2m1)).view({5, 256});
  EXPECT_TRUE(at::equal(tensor::simulate_groups(values, 32, BlockFormat::e2m1), weight_rows));
}

TEST(SimulateGroups, StridedAndBf16InputsAndEmptyOnes) {
  const Tensor values = at::randn({64, 96}, seeded(10));
  const Tensor turned = tensor::simulate_groups(values.t(), 32, BlockFormat::e4m3);
  EXPECT_TRUE(turned.is_contiguous());
  EXPECT_TRUE(at::equal(turned, tensor::simulate_groups(values.t().contiguous(), 32, BlockFormat::e4m3)));
  const Tensor half = values.to(at::kBFloat16);
  const Tensor simulated = tensor::simulate_groups(half, 32, BlockFormat::e4m3);
  EXPECT_EQ(simulated.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(simulated.to(at::kFloat), tensor::simulate_groups(half.to(at::kFloat), 32, BlockFormat::e4m3)));
  EXPECT_EQ(tensor::simulate_groups(at::empty({0, 96}), 32, BlockFormat::e4m3).sizes().vec(),
            (std::vector<int64_t>{0, 96}));
}

TEST(RoundBf16, EveryBf16WithEveryKindOfRestEqualsTorch) {
  const Tensor high = at::bitwise_left_shift(at::arange(0x10000, at::kInt), 16);
  for (const int rest : {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff}) {
    const Tensor values = high.bitwise_or(rest).view(at::kFloat);
    const Tensor rounded = tensor::round_bf16(values), torchs = values.to(at::kBFloat16).to(at::kFloat);
    const Tensor numbers = values.isnan().logical_not();
    EXPECT_TRUE(at::equal(rounded.isnan(), values.isnan()));
    EXPECT_TRUE(test::same_bits(rounded.masked_select(numbers), torchs.masked_select(numbers)));
  }
}

TEST(RoundBf16, GradientPassesUnchanged) {
  const Tensor values = at::randn({7, 5}, seeded(11)).requires_grad_();
  const Tensor weights = at::randn({7, 5}, seeded(12));
  (tensor::round_bf16(values) * weights).sum().backward();
  EXPECT_TRUE(at::equal(values.grad(), weights));
}

TEST(SimulateGroups, StraightThroughGradientPassesUnchanged) {
  for (const BlockFormat format : kFormats) {
    const Tensor values = at::randn({6, 50}, seeded(13)).requires_grad_();
    const Tensor weights = at::randn({6, 50}, seeded(14));
    const Tensor simulated = tensor::simulate_groups_st(values, 32, format);
    EXPECT_TRUE(at::equal(simulated, tensor::simulate_groups(values, 32, format)));
    (simulated * weights).sum().backward();
    EXPECT_TRUE(at::equal(values.grad(), weights));
  }
}

TEST(RoundBf16, WithoutGradientNoGraphIsBuilt) {
  EXPECT_FALSE(tensor::round_bf16(at::ones({3})).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(tensor::round_bf16(at::ones({3}).requires_grad_()).requires_grad());
}

}  // namespace
