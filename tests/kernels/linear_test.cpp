// linear and grouped_linear: values against f64, gradients of the reference against finite differences, the kernels'
// gradients against the reference's, independence of rows.
#include "kernels/linear.h"

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "kernels/reference/linear.h"
#include "tensor/autograd.h"
#include "tensor/formats/block_scale.h"

namespace kernels {
namespace {

using cpu::WeightFormat;
using tensor::BlockFormat;

constexpr WeightFormat kFormats[] = {WeightFormat::f32, WeightFormat::bf16, WeightFormat::e4m3, WeightFormat::e2m1};

Tensor random(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat);
}

bool quantised(WeightFormat format) { return format == WeightFormat::e4m3 || format == WeightFormat::e2m1; }

BlockFormat block_format(WeightFormat format) {
  return format == WeightFormat::e4m3 ? BlockFormat::e4m3 : BlockFormat::e2m1;
}

Matrix trainable(WeightFormat format, at::IntArrayRef shape, uint64_t seed) {
  Tensor values = random(shape, seed);
  std::optional<tensor::Quantised> codes;
  if (format == WeightFormat::bf16) values = values.to(at::kBFloat16).to(at::kFloat);
  if (quantised(format)) {
    codes = tensor::quantise_blocks(values, block_format(format));
    values = tensor::dequantise_blocks(*codes);
  }
  return Matrix::trainable(values, format, codes);
}

// What a product of this format sees.
Tensor input(WeightFormat format, at::IntArrayRef shape, uint64_t seed) {
  const Tensor x = random(shape, seed);
  return quantised(format) ? tensor::simulate_groups(x, 128, BlockFormat::e4m3) : x;
}

// A chain of K fused multiply-adds of terms t has an error of at most K * 2^-24 * sum |t| to first order; blocks add
// one rounding each, and K of them are generous for both orders. Rounding to bf16: half a unit, 2^-8 of the value at
// most.
Tensor tolerance(const Tensor& x, const Tensor& weight_NK, Rounding rounding) {
  const Tensor terms = at::matmul(x.to(at::kDouble).abs(), weight_NK.to(at::kDouble).abs().t());
  const double units = 2.0 * static_cast<double>(x.size(-1)) * 0x1p-24;
  return terms * (units + (rounding == Rounding::bf16 ? 0x1p-8 : 0)) + 1e-37;
}

void expect_near(const Tensor& actual, const Tensor& expected, const Tensor& bound, const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const Tensor excess = (actual.to(at::kDouble) - expected.to(at::kDouble)).abs() - bound;
  EXPECT_LE(excess.max().item<double>(), 0) << what;
}

std::string name(WeightFormat format) {
  return std::vector<std::string>{"f32", "bf16", "e4m3", "e2m1"}[static_cast<size_t>(format)];
}

TEST(Linear, EqualsTheF64ProductWithinTheChainsError) {
  for (const WeightFormat format : kFormats) {
    for (const int64_t rows : {1, 3, 9}) {
      const Matrix weight = trainable(format, {67, 258}, 1);
      const Tensor x = input(format, {rows, 258}, 2);
      for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
        const Tensor expected = at::matmul(x.to(at::kDouble), weight.values().to(at::kDouble).t());
        expect_near(linear(x, weight, rounding), expected, tolerance(x, weight.values(), rounding), name(format));
      }
    }
  }
}

TEST(Linear, RoundedResultIsTheRoundedSum) {
  const Matrix weight = trainable(WeightFormat::bf16, {50, 96}, 3);
  const Tensor x = random({7, 96}, 4);
  const Tensor sum = linear(x, weight, Rounding::none);
  EXPECT_TRUE(at::equal(linear(x, weight, Rounding::bf16), sum.to(at::kBFloat16).to(at::kFloat)));
}

TEST(Linear, EngineAndTrainableGiveEqualBits) {
  for (const WeightFormat format : kFormats) {
    const Matrix learned = trainable(format, {3, 40, 64}, 5);
    Matrix engine({3, 40, 64}, format);
    for (int64_t i = 0; i < 3; ++i) {
      if (quantised(format)) {
        engine.set(i, tensor::quantise_blocks(learned.values()[i], block_format(format)));
      } else {
        engine.set(i, learned.values()[i]);
      }
    }
    EXPECT_TRUE(at::equal(engine.values(), learned.values())) << name(format);
    const Tensor x = input(format, {5, 3 * 64}, 6);
    EXPECT_TRUE(at::equal(grouped_linear(x, engine, Rounding::bf16), grouped_linear(x, learned, Rounding::bf16)));
  }
}

TEST(Linear, LeadingDimsAndStridedRowsAreRows) {
  const Matrix weight = trainable(WeightFormat::f32, {20, 24}, 7);
  const Tensor wide = random({6, 40}, 8);
  const Tensor x = wide.slice(1, 8, 32);
  const Tensor y = linear(x.contiguous(), weight, Rounding::none);
  EXPECT_TRUE(at::equal(linear(x, weight, Rounding::none), y));
  EXPECT_TRUE(at::equal(linear(x.contiguous().view({2, 3, 24}), weight, Rounding::none), y.view({2, 3, 20})));
  EXPECT_TRUE(at::equal(linear(x.contiguous()[4], weight, Rounding::none), y[4]));
  EXPECT_EQ(linear(x.slice(0, 0, 0), weight, Rounding::none).sizes(), (std::vector<int64_t>{0, 20}));
}

TEST(Linear, ARowDoesNotDependOnTheOthersOrOnThreads) {
  const int threads = base::num_threads();
  for (const WeightFormat format : kFormats) {
    const Matrix weight = trainable(format, {200, 512}, 9);
    const Tensor x = input(format, {150, 512}, 10);
    const Tensor y = linear(x, weight, Rounding::none);
    for (const int64_t row : {0, 77, 149}) {
      EXPECT_TRUE(at::equal(linear(x.slice(0, row, row + 1), weight, Rounding::none)[0], y[row])) << name(format);
    }
    for (const int count : {1, 2, 3}) {
      base::set_num_threads(count);
      EXPECT_TRUE(at::equal(linear(x, weight, Rounding::none), y)) << name(format) << count;
    }
    base::set_num_threads(threads);
  }
}

// Of sum(linear(x, w) * direction) by central differences in f64: error about h^2 times third derivatives (none: the
// product is linear in each) plus 2^-53 / h.
TEST(LinearReference, GradientsAreFiniteDifferences) {
  const Tensor x = random({3, 10}, 11).to(at::kDouble), weight = random({2, 4, 5}, 12).to(at::kDouble);
  const Tensor direction = random({3, 8}, 13).to(at::kDouble);
  const auto loss = [&](const Tensor& x_TK, const Tensor& weight_GNK) {
    return (reference::grouped_linear(x_TK, weight_GNK, Rounding::none) * direction).sum();
  };
  for (const bool of_weight : {false, true}) {
    const Tensor variable = (of_weight ? weight : x).clone().requires_grad_(true);
    const Tensor value = of_weight ? loss(x, variable) : loss(variable, weight);
    const Tensor gradient = torch::autograd::grad({value}, {variable})[0].flatten();
    const double h = 1e-3;
    for (int64_t i = 0; i < gradient.numel(); ++i) {
      Tensor up = variable.detach().clone(), down = variable.detach().clone();
      up.flatten()[i] += h;
      down.flatten()[i] -= h;
      const double slope =
          ((of_weight ? loss(x, up) : loss(up, weight)) - (of_weight ? loss(x, down) : loss(down, weight)))
              .item<double>() /
          (2 * h);
      EXPECT_NEAR(gradient[i].item<double>(), slope, 1e-10);
    }
  }
}

TEST(LinearReference, RoundingPassesTheGradientOn) {
  const Tensor x = random({4, 6}, 14).requires_grad_(true), weight = random({5, 6}, 15);
  const Tensor dy = random({4, 5}, 16);
  const Tensor y = reference::linear(x, weight, Rounding::bf16);
  EXPECT_TRUE(at::equal(y, at::matmul(x, weight.t()).to(at::kBFloat16).to(at::kFloat)));
  EXPECT_TRUE(at::allclose(torch::autograd::grad({y}, {x}, {dy})[0], at::matmul(dy, weight), 1e-5, 1e-6));
}

TEST(Linear, GradientsEqualTheReferences) {
  for (const WeightFormat format : kFormats) {
    for (const bool grouped : {false, true}) {
      std::vector<int64_t> shape{48, 34};
      if (grouped) shape.insert(shape.begin(), 2);
      Matrix weight = trainable(format, shape, 17);
      weight.leaf().requires_grad_(true);
      const Tensor x = input(format, {21, grouped ? 68 : 34}, 18).requires_grad_(true);
      const Tensor y = grouped ? grouped_linear(x, weight, Rounding::bf16) : linear(x, weight, Rounding::bf16);
      const Tensor dy = random(y.sizes(), 19);
      const auto gradients = torch::autograd::grad({y}, {x, weight.leaf()}, {dy});

      const Tensor x64 = x.detach().to(at::kDouble).requires_grad_(true);
      const Tensor weight64 = weight.leaf().detach().to(at::kDouble).requires_grad_(true);
      const Tensor y64 = grouped ? reference::grouped_linear(x64, weight64, Rounding::bf16)
                                 : reference::linear(x64, weight64, Rounding::bf16);
      const auto expected = torch::autograd::grad({y64}, {x64, weight64}, {dy.to(at::kDouble)});
      // Chains of at most 48 terms, each below about 4 * 4 * 6: 48 * 48 * 100 * 2^-24 at the very worst.
      EXPECT_TRUE(at::allclose(gradients[0].to(at::kDouble), expected[0], 1e-5, 1e-4)) << name(format);
      EXPECT_TRUE(at::allclose(gradients[1].to(at::kDouble), expected[1], 1e-5, 1e-4)) << name(format);
      EXPECT_EQ(gradients[1].sizes(), weight.leaf().sizes());
    }
  }
}

TEST(Linear, GradientsDoNotDependOnThreads) {
  const int threads = base::num_threads();
  Matrix weight = trainable(WeightFormat::bf16, {160, 192}, 20);
  weight.leaf().requires_grad_(true);
  const Tensor x = random({600, 192}, 21).requires_grad_(true), dy = random({600, 160}, 22);
  const auto gradients = [&] {
    return torch::autograd::grad({linear(x, weight, Rounding::bf16)}, {x, weight.leaf()}, {dy});
  };
  const auto expected = gradients();
  for (const int count : {1, 2, 3}) {
    base::set_num_threads(count);
    const auto again = gradients();
    EXPECT_TRUE(at::equal(again[0], expected[0]) && at::equal(again[1], expected[1])) << count;
  }
  base::set_num_threads(threads);
}

TEST(Linear, AGradientThroughAMatrixPackedForGenerationIsNamedAsOurBug) {
  Matrix engine({0, 8, 8}, WeightFormat::f32);
  engine.set(0, random({8, 8}, 23));
  const Tensor x = random({2, 8}, 24).requires_grad_(true);
  try {
    linear(x, engine, Rounding::none);
    FAIL() << "no error";
  } catch (const base::Error& error) {
    EXPECT_NE(std::string(error.what()).find("packed for generation"), std::string::npos) << error.what();
  }
}

TEST(Linear, OnlyWhatLearnsHasAGradient) {
  Matrix weight = trainable(WeightFormat::f32, {8, 8}, 23);
  const Tensor x = random({2, 8}, 24);
  EXPECT_FALSE(linear(x, weight, Rounding::none).requires_grad());
  weight.leaf().requires_grad_(true);
  linear(x, weight, Rounding::none).sum().backward();
  EXPECT_TRUE(at::allclose(weight.leaf().grad(), x.sum(0).expand({8, 8})));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(linear(x, weight, Rounding::none).requires_grad());
}

TEST(Matrix, KeepsF32ScalesThatAreNoPowersOfTwo) {
  const Tensor codes = at::randint(0, 127, {130, 130}, at::kByte);
  const Tensor scales = at::rand({2, 2}) + 0.5;
  Matrix matrix({0, 130, 130}, WeightFormat::e4m3);
  matrix.set(0, {codes, scales, BlockFormat::e4m3});
  EXPECT_TRUE(at::equal(matrix.values(), tensor::dequantise_blocks({codes, scales, BlockFormat::e4m3})));
}

TEST(Matrix, BlockScaleByte255MakesItsOutputsNaN) {
  const Tensor codes = at::full({130, 130}, 0x38, at::kByte);
  Tensor scales = at::full({2, 2}, 127, at::kByte);
  scales[1][0] = 255;
  Matrix matrix({0, 130, 130}, WeightFormat::e4m3);
  matrix.set(0, {codes, scales, BlockFormat::e4m3});
  const Tensor y = linear(at::ones({2, 130}), matrix, Rounding::none);
  EXPECT_TRUE((y.slice(1, 0, 128) == 130).all().item<bool>());
  EXPECT_TRUE(y.slice(1, 128, 130).isnan().all().item<bool>());
}

}  // namespace
}  // namespace kernels
