// Experts: kernels against a loop in f64 and against one token and one expert at a time (to the bit), gradients, and
// what a token's result may not depend on.
#include "kernels/experts.h"

#include <array>
#include <optional>

#include "base/error.h"
#include "kernels/cpu/experts.h"
#include "kernels/linear.h"
#include "kernels/op_checks.h"
#include "kernels/reference/experts.h"
#include "tensor/formats/block_scale.h"
#include "tensor/golden.h"
#include "tensor/recycle.h"

namespace {

using kernels::ExpertOptions;
using kernels::Matrix;
using kernels::Rounding;
using kernels::cpu::WeightFormat;
using tensor::BlockFormat;
using test::kUnit;
using test::normal;
using test::Tensor;
using test::Tensors;

constexpr WeightFormat kFormats[] = {WeightFormat::f32, WeightFormat::bf16, WeightFormat::e4m3, WeightFormat::e2m1};

bool quantised(WeightFormat format) { return format == WeightFormat::e4m3 || format == WeightFormat::e2m1; }

Tensor simulated(const Tensor& values) { return tensor::simulate_groups(values, 128, BlockFormat::e4m3); }

Matrix matrix(const Tensor& from, WeightFormat format) {
  if (format == WeightFormat::f32) return Matrix::trainable(from.clone(), format, std::nullopt);
  const Tensor published = from.to(at::kBFloat16).to(at::kFloat);
  if (format == WeightFormat::bf16) return Matrix::trainable(published, format, std::nullopt);
  const auto codes =
      tensor::quantise_blocks(published, format == WeightFormat::e4m3 ? BlockFormat::e4m3 : BlockFormat::e2m1);
  return Matrix::trainable(tensor::dequantise_blocks(codes), format, codes);
}

struct Sizes {
  int64_t tokens, hidden, width, experts, per_token;
};

// Choices in ascending ids, no expert twice; the last experts are chosen by nobody.
Tensor choices(const Sizes& s, uint64_t seed) {
  const Tensor order = std::get<1>(normal({s.tokens, s.experts - 1}, seed).sort(1)).narrow(1, 0, s.per_token);
  return std::get<0>(order.sort(1)).to(at::kInt).contiguous();
}

struct Layer {
  Sizes sizes;
  ExpertOptions options;
  Matrix w1, w2, w3;
  Tensor x, expert, weight, shared;

  Layer(const Sizes& s, WeightFormat format, double scale = .3) : sizes(s) {
    w1 = matrix(normal({s.experts, s.width, s.hidden}, 1) * scale, format);
    w2 = matrix(normal({s.experts, s.hidden, s.width}, 2) * scale, format);
    w3 = matrix(normal({s.experts, s.width, s.hidden}, 3) * scale, format);
    x = normal({s.tokens, s.hidden}, 4);
    if (quantised(format)) x = simulated(x);
    expert = choices(s, 5);
    weight = normal({s.tokens, s.per_token}, 6).abs();
    shared = normal({s.tokens, s.hidden}, 7);
    options.limit = 2;
    options.rounding = format == WeightFormat::f32 ? Rounding::none : Rounding::bf16;
    options.simulate = quantised(format);
  }
  kernels::ExpertWeights weights() const { return {w1, w2, w3}; }
  Tensor run() const { return kernels::routed_experts(x, expert, weight, shared, weights(), options); }
  Tensor run(const Tensor& rows) const {  // of these tokens alone
    return kernels::routed_experts(x.index_select(0, rows), expert.index_select(0, rows), weight.index_select(0, rows),
                                   shared.index_select(0, rows), weights(), options);
  }
  void learn() {
    for (Matrix* m : {&w1, &w2, &w3}) m->leaf().requires_grad_().mutable_grad() = Tensor();
    for (Tensor* t : {&x, &weight, &shared}) *t = t->detach().clone().requires_grad_();
  }
  Tensors slopes() const {
    return {x.grad(), weight.grad(), shared.grad(), w1.leaf().grad(), w2.leaf().grad(), w3.leaf().grad()};
  }
};

const char* const kInputs[] = {"x", "weight", "shared", "w1", "w2", "w3"};

Tensors gradients(Layer& layer) {
  layer.learn();
  test::weighted_sum({layer.run()}).backward();
  return layer.slopes();
}

// The same by the reference in this dtype.
Tensors reference_gradients(const Layer& layer, at::ScalarType dtype) {
  return test::gradients(
      [&](const Tensors& in) {
        return Tensors{kernels::reference::routed_experts(in[0], layer.expert, in[1], in[2], {in[3], in[4], in[5]},
                                                          layer.options)};
      },
      {layer.x, layer.weight, layer.shared, layer.w1.values(), layer.w2.values(), layer.w3.values()}, dtype);
}

// One token by the formulas in f64, and the first-order bound of what f32 chains make of it: a product of K terms has
// an error of K units of the sum of their magnitudes, silu a slope of at most 1.1 and an error of 5 units in the last
// place.
struct Exact {
  Tensor value, bound;
};

Exact exact(const Layer& layer, int64_t token) {
  const auto f64 = [](const Tensor& t) { return t.detach().to(at::kDouble); };
  const Tensor x = f64(layer.x[token]);
  const double limit = layer.options.limit;
  Tensor sum = at::zeros_like(x), error = at::zeros_like(x), size = at::zeros_like(x);
  for (int64_t a = 0; a < layer.sizes.per_token; ++a) {
    const int64_t e = layer.expert[token][a].item<int64_t>();
    const double w = layer.weight[token][a].item<double>();
    const Tensor w1 = f64(layer.w1.values()[e]), w2 = f64(layer.w2.values()[e]), w3 = f64(layer.w3.values()[e]);
    const double d = static_cast<double>(layer.sizes.hidden), f = static_cast<double>(layer.sizes.width);
    const Tensor g = at::mv(w1, x).clamp_max(limit), u = at::mv(w3, x).clamp(-limit, limit), silu = g * at::sigmoid(g);
    const Tensor g_error = at::mv(w1.abs(), x.abs()) * d * kUnit, u_error = at::mv(w3.abs(), x.abs()) * d * kUnit;
    const Tensor h = w * silu * u;
    const Tensor h_error = w * (1.1 * g_error * u.abs() + silu.abs() * u_error) + 10 * kUnit * h.abs();
    const Tensor y = at::mv(w2, h);
    sum = sum + y;
    error = error + at::mv(w2.abs(), h_error + f * kUnit * h.abs());
    size = size + y.abs();
  }
  const Tensor shared = f64(layer.shared[token]);
  const double additions = static_cast<double>(layer.sizes.per_token);
  return {sum + shared, 1.01 * (error + additions * kUnit * (size + shared.abs()))};
}

// One token through one expert at a time: linear() and the kernel of the activation, sums by tensor operations.
Tensor one_by_one(const Layer& layer, int64_t token) {
  const WeightFormat format = layer.w1.format();
  const auto single = [&](const Matrix& stack, int64_t e) { return matrix(stack.values()[e].clone(), format); };
  const Tensor x = layer.x.narrow(0, token, 1);
  Tensor sum;
  for (int64_t a = 0; a < layer.sizes.per_token; ++a) {
    const int64_t e = layer.expert[token][a].item<int64_t>();
    const Tensor gate = kernels::linear(x, single(layer.w1, e), layer.options.rounding);
    const Tensor up = kernels::linear(x, single(layer.w3, e), layer.options.rounding);
    const float weight = layer.weight[token][a].item<float>();
    Tensor h = at::empty_like(gate);
    kernels::cpu::Swiglu swiglu;
    swiglu.gate = gate.const_data_ptr<float>(), swiglu.up = up.const_data_ptr<float>(), swiglu.weight = &weight;
    swiglu.rows = 1, swiglu.width = layer.sizes.width, swiglu.limit = static_cast<float>(layer.options.limit);
    swiglu.round_bf16 = layer.options.rounding == Rounding::bf16, swiglu.simulate = layer.options.simulate;
    kernels::cpu::swiglu(swiglu, h.mutable_data_ptr<float>());
    const Tensor y = kernels::linear(h, single(layer.w2, e), layer.options.rounding);
    sum = sum.defined() ? sum + y : y;
  }
  sum = sum + layer.shared.narrow(0, token, 1);
  return layer.options.rounding == Rounding::bf16 ? sum.to(at::kBFloat16).to(at::kFloat) : sum;
}

const Sizes kSizes[] = {
    {1, 1, 1, 2, 1}, {1, 32, 16, 8, 6}, {5, 34, 18, 9, 3}, {40, 64, 130, 7, 2}, {70, 130, 66, 4, 3}};

TEST(Experts, KernelIsWithinTheRoundingsOfItsSumsFromTheExactValue) {
  for (const Sizes& sizes : kSizes) {
    const Layer layer(sizes, WeightFormat::f32);
    const Tensor out = layer.run();
    const Tensor slow =
        kernels::reference::routed_experts(layer.x, layer.expert, layer.weight, layer.shared,
                                           {layer.w1.values(), layer.w2.values(), layer.w3.values()}, layer.options);
    for (int64_t t = 0; t < sizes.tokens; ++t) {
      const Exact wanted = exact(layer, t);
      EXPECT_LE(test::worst(out[t], wanted.value, wanted.bound), 1) << sizes.hidden << ", token " << t;
      EXPECT_LE(test::worst(slow[t], wanted.value, wanted.bound), 1) << sizes.hidden << ", token " << t;
    }
  }
}

TEST(Experts, EveryTokenEqualsItsExpertsOneByOneToTheBit) {
  for (const WeightFormat format : kFormats) {
    for (const Sizes& sizes : kSizes) {
      if (format == WeightFormat::e2m1 && (sizes.hidden % 2 != 0 || sizes.width % 2 != 0)) continue;
      const Layer layer(sizes, format);
      const Tensor out = layer.run();
      for (int64_t t = 0; t < sizes.tokens; t += 3) {
        EXPECT_TRUE(test::same_bits(out.narrow(0, t, 1), one_by_one(layer, t)))
            << static_cast<int>(format) << ", " << sizes.hidden << ", token " << t;
      }
    }
  }
}

TEST(Experts, ATokenDependsNeitherOnTheBatchNorItsOrderNorThreads) {
  for (const WeightFormat format : kFormats) {
    const Layer layer({130, 128, 160, 12, 4}, format);
    const Tensor out = layer.run();
    test::for_thread_counts([&] { EXPECT_TRUE(test::same_bits(layer.run(), out)); });
    const Tensor shuffled = at::randperm(130, at::make_generator<at::CPUGeneratorImpl>(3), at::kLong);
    for (const Tensor& rows :
         {at::tensor({0}), at::tensor({129}), at::arange(7, 60), shuffled, at::zeros({9}, at::kLong)}) {
      EXPECT_TRUE(test::same_bits(layer.run(rows), out.index_select(0, rows)));
    }
  }
}

TEST(Experts, AnEnginesMatricesGiveTheBitsOfTrainableOnes) {
  const Layer layer({9, 64, 48, 6, 2}, WeightFormat::bf16);
  const auto engine = [](const Matrix& from) {
    Matrix to(from.shape(), from.format());
    for (int64_t e = 0; e < from.shape().stack; ++e) to.set(e, from.values()[e]);
    return to;
  };
  const Matrix w1 = engine(layer.w1), w2 = engine(layer.w2), w3 = engine(layer.w3);
  EXPECT_TRUE(test::same_bits(
      kernels::routed_experts(layer.x, layer.expert, layer.weight, layer.shared, {w1, w2, w3}, layer.options),
      layer.run()));
}

TEST(Experts, GradientOfTheDefinitionMatchesDifferences) {
  const Layer layer({6, 7, 5, 4, 2}, WeightFormat::f32);
  test::expect_gradients_match_differences(
      [&](const Tensors& in) {
        return Tensors{
            kernels::reference::routed_experts(in[0], layer.expert, in[1], in[2], {in[3], in[4], in[5]}, layer.options),
            kernels::reference::shared_expert(in[0], {in[3][0], in[4][0], in[5][0]}, layer.options)};
      },
      {layer.x, layer.weight, layer.shared, layer.w1.values(), layer.w2.values(), layer.w3.values()});
}

// Sums of K terms of random sign are about sqrt(K) terms large, and have about sqrt(K) roundings of that size: K units
// of the largest result leave room for the factors before them.
TEST(Experts, GradientsAreWithinRoundingsFromTheExactOnes) {
  for (const Sizes& sizes : kSizes) {
    Layer layer(sizes, WeightFormat::f32);
    const Tensors wanted = reference_gradients(layer, at::kDouble), slow = reference_gradients(layer, at::kFloat);
    const Tensors fast = gradients(layer);
    const double terms = static_cast<double>(16 + sizes.hidden + sizes.width + sizes.tokens);
    for (size_t i = 0; i < fast.size(); ++i) {
      const double bound = 4 * terms * kUnit * wanted[i].abs().max().item<double>();
      EXPECT_LE(test::worst(fast[i], wanted[i], bound), 1) << kInputs[i] << ", " << sizes.hidden;
      EXPECT_LE(test::worst(slow[i], wanted[i], bound), 1) << kInputs[i] << ", " << sizes.hidden;
    }
  }
}

// Where values are rounded the two sum in other orders, and now and then one of them rounds the other way: 2^-8 of a
// value, of e4m3 2^-4. A gradient that did not pass straight through would be off by its own size.
TEST(Experts, RoundingAndSimulationPassTheGradientStraightThrough) {
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::e4m3, WeightFormat::e2m1}) {
    Layer layer({33, 128, 160, 6, 2}, format);
    const Tensors wanted = reference_gradients(layer, at::kFloat), fast = gradients(layer);
    for (size_t i = 0; i < fast.size(); ++i) {
      const double apart = ((fast[i] - wanted[i]).norm() / wanted[i].norm()).item<double>();
      EXPECT_LE(apart, format == WeightFormat::bf16 ? 0x1p-8 : 0x1p-6) << kInputs[i];
    }
  }
}

TEST(Experts, AnExpertWithoutTokensHasAGradientOfZero) {
  Layer layer({5, 32, 16, 6, 2}, WeightFormat::bf16);
  const Tensors slopes = gradients(layer);
  for (size_t i = 3; i < slopes.size(); ++i) {
    EXPECT_TRUE(slopes[i].defined());
    EXPECT_EQ(slopes[i][5].abs().max().item<float>(), 0);
    EXPECT_GT(slopes[i].abs().max().item<float>(), 0);
  }
}

TEST(Experts, GradientsHaveTheSameBitsOnAnyNumberOfThreads) {
  Layer layer({150, 128, 96, 10, 4}, WeightFormat::e4m3);
  const Tensors wanted = gradients(layer);
  test::for_thread_counts([&] {
    const Tensors again = gradients(layer);
    for (size_t i = 0; i < again.size(); ++i) EXPECT_TRUE(test::same_bits(again[i], wanted[i])) << kInputs[i];
  });
}

TEST(Experts, AFrozenLayerPassesTheGradientToItsInputAlone) {
  Layer layer({5, 32, 16, 6, 2}, WeightFormat::bf16);
  const Tensors wanted = gradients(layer);
  for (Matrix* m : {&layer.w1, &layer.w2, &layer.w3}) {
    m->leaf().mutable_grad() = Tensor();
    m->leaf().requires_grad_(false);
  }
  layer.x = layer.x.detach().clone().requires_grad_();
  layer.weight = layer.weight.detach();
  layer.shared = layer.shared.detach();
  test::weighted_sum({layer.run()}).backward();
  EXPECT_TRUE(test::same_bits(layer.x.grad(), wanted[0]));
  EXPECT_FALSE(layer.w1.leaf().grad().defined());
}

kernels::ExpertWeights shared_weights(const std::array<Matrix, 3>& w) { return {w[0], w[1], w[2]}; }

std::array<Matrix, 3> shared_matrices(WeightFormat format, int64_t hidden, int64_t width) {
  return {matrix(normal({width, hidden}, 21) * .3, format), matrix(normal({hidden, width}, 22) * .3, format),
          matrix(normal({width, hidden}, 23) * .3, format)};
}

TEST(Experts, TheSharedExpertIsARoutedOneOfWeightOne) {
  for (const WeightFormat format : kFormats) {
    const Layer layer({13, 66, 34, 3, 1}, format);
    const std::array<Matrix, 3> w = shared_matrices(format, 66, 34);
    const auto stack = [&](const Matrix& m) { return matrix(m.values().unsqueeze(0).clone(), format); };
    const Matrix w1 = stack(w[0]), w2 = stack(w[1]), w3 = stack(w[2]);
    const Tensor wanted = kernels::routed_experts(layer.x, at::zeros({13, 1}, at::kInt), at::ones({13, 1}),
                                                  at::zeros_like(layer.x), {w1, w2, w3}, layer.options);
    EXPECT_TRUE(test::same_bits(kernels::shared_expert(layer.x, shared_weights(w), layer.options) + 0.0, wanted));
  }
}

TEST(Experts, GradientsOfTheSharedExpertAreWithinRoundingsFromTheExactOnes) {
  std::array<Matrix, 3> w = shared_matrices(WeightFormat::f32, 66, 34);
  ExpertOptions options;
  options.limit = 2;
  const Tensor x = normal({13, 66}, 4);
  const auto run = [&](const Tensors& in) {
    return Tensors{kernels::reference::shared_expert(in[0], {in[1], in[2], in[3]}, options)};
  };
  const Tensors wanted = test::gradients(run, {x, w[0].values(), w[1].values(), w[2].values()}, at::kDouble);
  for (Matrix& m : w) m.leaf().requires_grad_();
  const Tensor leaf = x.clone().requires_grad_();
  test::weighted_sum({kernels::shared_expert(leaf, shared_weights(w), options)}).backward();
  const Tensors fast = {leaf.grad(), w[0].leaf().grad(), w[1].leaf().grad(), w[2].leaf().grad()};
  for (size_t i = 0; i < fast.size(); ++i) {
    EXPECT_LE(test::worst(fast[i], wanted[i], 4 * 130 * kUnit * wanted[i].abs().max().item<double>()), 1) << i;
  }
}

TEST(Experts, NoTokensGiveNoRowsAndNoGradient) {
  Layer layer({0, 32, 16, 6, 2}, WeightFormat::f32);
  EXPECT_EQ(layer.run().sizes(), (std::vector<int64_t>{0, 32}));
  const Tensors slopes = gradients(layer);
  EXPECT_EQ(slopes[3].abs().max().item<float>(), 0);
  const std::array<Matrix, 3> w = shared_matrices(WeightFormat::f32, 32, 16);
  EXPECT_EQ(kernels::shared_expert(layer.x, shared_weights(w), layer.options).size(0), 0);
}

TEST(Experts, AnExpertThatDoesNotExistIsRefused) {
  Layer layer({2, 32, 16, 6, 2}, WeightFormat::f32);
  layer.expert = layer.expert + 5;
  EXPECT_THROW(layer.run(), base::Error);
}

TEST(Experts, StepsOfTheSameShapeAllocateNothing) {
  const Layer layer({3, 128, 128, 16, 6}, WeightFormat::bf16);
  const std::array<Matrix, 3> w = shared_matrices(WeightFormat::bf16, 128, 128);
  const at::NoGradGuard no_grad;
  tensor::Recycler recycler;
  int64_t first = 0;
  for (int step = 0; step < 4; ++step) {
    const tensor::RecycleScope scope(recycler);
    layer.run();
    kernels::shared_expert(layer.x, shared_weights(w), layer.options);
    recycler.sweep();
    if (step == 0) first = recycler.num_allocations();
  }
  EXPECT_EQ(recycler.num_allocations(), first);
}

}  // namespace
