// The ops' way to the GPU kernels, on emulated lanes: the binary links the GPU sources in the place of kernels/no_gpu,
// and the emulated dialect takes tensors in host memory. What a GPU adds is its compiler and its queue.
#include <gtest/gtest.h>

#include "kernels/block_scale.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu_dispatch.h"
#include "kernels/hyper_connection.h"
#include "kernels/log_prob.h"
#include "kernels/op_checks.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/router.h"
#include "kernels/simulate.h"

namespace {

using kernels::Matrix;
using kernels::ReferenceScope;
using kernels::Rounding;
using kernels::cpu::WeightFormat;
using tensor::BlockFormat;
using test::Function;
using test::normal;
using test::Tensor;
using test::Tensors;

// Whether run() put a kernel into the queue.
template <class Run>
bool reaches_a_kernel(const Run& run) {
  int& lanes = kernels::gpu::EmulatedBlock::current().lanes;
  lanes = 0;
  run();
  return lanes > 0;
}

Function by_reference(const Function& op) {
  return [op](const Tensors& inputs) {
    const ReferenceScope references;
    return op(inputs);
  };
}

// The op runs a kernel; its values are the reference's within `bound` of the largest; its gradients are the
// reference's, to the bit, since they come from it.
void expect_kernel_of(const char* name, const Function& op, const Tensors& inputs, double bound) {
  SCOPED_TRACE(name);
  Tensors own, wanted;
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(reaches_a_kernel([&] { own = op(inputs); }));
    EXPECT_FALSE(reaches_a_kernel([&] { wanted = by_reference(op)(inputs); }));
  }
  ASSERT_EQ(own.size(), wanted.size());
  for (size_t i = 0; i < own.size(); ++i) {
    ASSERT_EQ(own[i].sizes(), wanted[i].sizes()) << i;
    const double size = wanted[i].numel() > 0 ? wanted[i].abs().max().item<double>() : 0;
    EXPECT_LE(test::worst(own[i], wanted[i], bound * size), 1) << i;
  }
  Tensors slopes;
  EXPECT_TRUE(reaches_a_kernel([&] { slopes = test::gradients(op, inputs, at::kFloat); }));
  const Tensors expected = test::gradients(by_reference(op), inputs, at::kFloat);
  for (size_t i = 0; i < slopes.size(); ++i) EXPECT_TRUE(at::equal(slopes[i], expected[i])) << "input " << i;
}

constexpr double kBound = 64 * test::kUnit;  // sums of some hundred terms in another order, and exponentials
constexpr double kOneGridStep = 0x1p-3;      // e4m3: a value that is rounded the other way

kernels::RopeTable rope_table(int64_t positions, int64_t pairs) {
  const Tensor angle = at::arange(positions, at::kFloat).unsqueeze(1) * at::arange(1, pairs + 1, at::kFloat);
  return {angle.cos(), angle.sin()};
}

kernels::Layout tokens(int64_t count) {
  kernels::Layout layout;
  layout.num_tokens = count;
  for (int64_t t = 0; t < count; ++t) layout.position_T.push_back(static_cast<int32_t>(t * 7 % 50));
  return layout;
}

TEST(GpuOps, NormsRunTheKernel) {
  const auto norm = [](const Tensors& in) {
    return Tensors{kernels::rms_norm(in[0], in.size() > 1 ? in[1] : Tensor(), 1e-6, Rounding::none)};
  };
  expect_kernel_of("weighted", norm, {normal({3, 5, 96}, 1), normal({96}, 2)}, kBound);
  expect_kernel_of("plain", norm, {normal({7, 33}, 3)}, kBound);
}

TEST(GpuOps, EmptyAndStridedInputsAreFine) {
  const at::NoGradGuard no_grad;
  const auto norm = [](const Tensor& x) { return kernels::rms_norm(x, {}, 1e-6, Rounding::none); };
  EXPECT_EQ(norm(normal({0, 33}, 3)).sizes(), at::IntArrayRef({0, 33}));
  const Tensor x = normal({33, 7}, 3).t();
  EXPECT_TRUE(at::equal(norm(x), norm(x.contiguous())));
}

TEST(GpuOps, QueriesKeysAndTurnsRunTheKernel) {
  const kernels::Layout layout = tokens(9);
  const kernels::RopeTable table = rope_table(50, 8);
  const auto queries = [&](const Tensors& in) {
    return Tensors{kernels::query_heads(in[0], 4, 1e-6, layout, table, Rounding::none)};
  };
  expect_kernel_of("queries", queries, {normal({9, 4 * 80}, 1)}, kBound);
  for (const bool simulate : {false, true}) {
    const auto keys = [&](const Tensors& in) {
      return Tensors{kernels::kv_rows(in[0], in[1], {1e-6, Rounding::none, simulate}, layout, table)};
    };
    expect_kernel_of("keys", keys, {normal({9, 80}, 1), normal({80}, 2)}, simulate ? kOneGridStep : kBound);
  }
  for (const bool inverse : {false, true}) {
    const auto turn = [&](const Tensors& in) {
      return Tensors{kernels::rotate(in[0], layout, table, inverse, Rounding::none)};
    };
    expect_kernel_of("turned", turn, {normal({9, 3, 24}, 4)}, kBound);
  }
}

TEST(GpuOps, RoundingIsTheKernels) {
  const at::NoGradGuard no_grad;
  const Tensor x = normal({5, 96}, 1);
  const Tensor y = kernels::rms_norm(x, Tensor(), 1e-6, Rounding::bf16);
  EXPECT_TRUE(at::equal(y, y.to(at::kBFloat16).to(at::kFloat)));
  const Tensor turned = kernels::rotate(x, tokens(5), rope_table(50, 8), false, Rounding::bf16);
  EXPECT_TRUE(at::equal(turned, turned.to(at::kBFloat16).to(at::kFloat)));
}

struct Site {
  Matrix fn;
  Tensor base, scale;
  kernels::HcWeights weights() const { return {fn, base, scale}; }
};
Site site_of(const Tensors& in) { return {Matrix::trainable(in[1], WeightFormat::f32, std::nullopt), in[2], in[3]}; }

TEST(GpuOps, HyperConnectionsRunTheKernels) {
  const int64_t m = 4, d = 24, rows = (2 + m) * m;
  const kernels::HcOptions options;
  const auto pre = [&](const Tensors& in) {
    const Site site = site_of(in);
    const kernels::HcInput out = kernels::hc_pre(in[0], site.weights(), options);
    return Tensors{out.input_TD, out.post_TM, out.comb_TMM};
  };
  const Tensor fn = normal({rows, m * d}, 2) * .1;
  expect_kernel_of("pre", pre, {normal({6, m, d}, 1), fn, normal({rows}, 3), normal({3}, 4)}, kBound);
  const auto head = [&](const Tensors& in) {
    const Site site = site_of(in);
    return Tensors{kernels::hc_head(in[0], site.weights(), options)};
  };
  expect_kernel_of("head", head, {normal({6, m, d}, 1), normal({m, m * d}, 2) * .1, normal({m}, 3), normal({1}, 4)},
                   kBound);
  const auto post = [](const Tensors& in) {
    return Tensors{kernels::hc_post(in[0], in[1], in[2], in[3], Rounding::none)};
  };
  expect_kernel_of("post", post, {normal({6, d}, 1), normal({6, m, d}, 2), normal({6, m}, 3), normal({6, m, m}, 4)},
                   kBound);
  const auto comb = [](const Tensors& in) { return Tensors{kernels::sinkhorn(in[0], 20, 1e-6)}; };
  expect_kernel_of("comb", comb, {normal({5, m, m}, 9)}, kBound);
}

TEST(GpuOps, MoreStreamsThanTheKernelHasRunTheReference) {
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(reaches_a_kernel([] { kernels::sinkhorn(normal({2, 9, 9}, 1), 3, 1e-6); }));
}

TEST(GpuOps, RoutingRunsTheKernels) {
  const Tensor logits = normal({7, 40}, 1), bias = normal({40}, 2) * .1;
  for (const auto scoring : {kernels::Scoring::sqrtsoftplus, kernels::Scoring::sigmoid, kernels::Scoring::softmax}) {
    kernels::RouterOptions options;
    options.scoring = scoring;
    options.experts_per_token = 6;
    options.factor = 1.5;
    Tensor chosen;
    EXPECT_TRUE(reaches_a_kernel([&] { chosen = kernels::best_experts(logits, bias, options); }));
    {
      const ReferenceScope references;
      EXPECT_TRUE(at::equal(chosen, kernels::best_experts(logits, bias, options)));
    }
    const auto weigh = [&](const Tensors& in) { return Tensors{kernels::expert_weights(in[0], chosen, options)}; };
    expect_kernel_of("weights", weigh, {logits}, kBound);
    EXPECT_FALSE(reaches_a_kernel([&] { kernels::best_experts(normal({1, 2049}, 3), normal({2049}, 4), options); }));
  }
}

TEST(GpuOps, LogProbsRunTheKernelByChunksOfRows) {
  const int64_t rows = 11, d = 8, vocab = 1500;
  const Tensor target = at::arange(rows, at::kLong) * 100;
  const Tensor absent = at::arange(vocab) >= 1400;
  for (const bool masked : {false, true}) {
    kernels::LogProbOptions options;
    options.temperature = masked ? .8 : 1;
    if (masked) options.absent_V = absent;
    options.rows_per_chunk = 4;
    const auto scores = [&](const Tensors& in) {
      const Matrix head = Matrix::trainable(in[1], WeightFormat::f32, std::nullopt);
      const kernels::LogProbs out = kernels::chunked_log_probs(in[0], head, target, options);
      return Tensors{out.log_prob_N, out.entropy_N};
    };
    expect_kernel_of("log-probs", scores, {normal({rows, d}, 1), normal({vocab, d}, 2)}, kBound);
  }
}

TEST(GpuOps, SimulationAndCodesAreTheDefinitionsToTheBit) {
  const Tensor x = normal({5, 300}, 1) * at::pow(10, at::arange(5, at::kFloat).unsqueeze(1) * 7 - 14);
  for (const BlockFormat format : {BlockFormat::e4m3, BlockFormat::e2m1}) {
    const auto simulate = [&](const Tensors& in) { return Tensors{kernels::simulate_groups(in[0], 64, format)}; };
    expect_kernel_of("simulated", simulate, {x}, 0);
  }
  const auto expect_equal = [](const tensor::Quantised& own, const tensor::Quantised& wanted) {
    EXPECT_TRUE(at::equal(own.codes, wanted.codes));
    EXPECT_TRUE(at::equal(own.scales, wanted.scales));
  };
  tensor::Quantised own;
  EXPECT_TRUE(reaches_a_kernel([&] { own = kernels::quantise_groups(x, 128, BlockFormat::e4m3); }));
  expect_equal(own, tensor::quantise_groups(x, 128, BlockFormat::e4m3));
  for (const Tensor& weight : {normal({130, 300}, 2), normal({3, 40, 129}, 3).to(at::kBFloat16), at::zeros({1, 5})}) {
    EXPECT_TRUE(reaches_a_kernel([&] { own = kernels::quantise_blocks(weight, BlockFormat::e4m3); }));
    expect_equal(own, tensor::quantise_blocks(weight, BlockFormat::e4m3));
    for (const bool f32_scales : {false, true}) {
      if (f32_scales) own.scales = normal(own.scales.sizes().vec(), 5);
      Tensor back;
      EXPECT_TRUE(reaches_a_kernel([&] { back = kernels::dequantise_blocks(own); }));
      EXPECT_TRUE(at::equal(back, tensor::dequantise_blocks(own)));
    }
  }
  EXPECT_FALSE(reaches_a_kernel([&] { own = kernels::quantise_blocks(normal({4, 64}, 6), BlockFormat::e2m1); }));
}

TEST(GpuOps, F64RunsTheReference) {
  EXPECT_FALSE(reaches_a_kernel([] { kernels::rms_norm(normal({3, 8}, 1, at::kDouble), {}, 1e-6, Rounding::none); }));
}

}  // namespace
