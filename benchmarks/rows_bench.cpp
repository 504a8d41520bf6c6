// Row-wise kernels: time per call at batch 1 and bytes per second over many rows.
#include <benchmark/benchmark.h>

#include "kernels/hyper_connection.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/simulate.h"
#include "tensor/autograd.h"

namespace {

using kernels::Rounding;
using tensor::Tensor;

// Bytes that a pass must move: `reads` and `writes` in floats.
void count_bytes(benchmark::State& state, int64_t floats) {
  state.SetBytesProcessed(state.iterations() * floats * static_cast<int64_t>(sizeof(float)));
}

void rms_norm(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const Tensor x = at::randn({state.range(0), state.range(1)}), weight = at::randn({state.range(1)});
  for (auto _ : state) benchmark::DoNotOptimize(kernels::rms_norm(x, weight, 1e-6, Rounding::bf16));
  count_bytes(state, 2 * x.numel());
}
BENCHMARK(rms_norm)->Args({1, 512})->Args({4096, 512});

void simulate_e4m3(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const Tensor x = at::randn({state.range(0), state.range(1)});
  for (auto _ : state) benchmark::DoNotOptimize(kernels::simulate_groups(x, 128, tensor::BlockFormat::e4m3));
  count_bytes(state, 2 * x.numel());
}
BENCHMARK(simulate_e4m3)->Args({1, 512})->Args({4096, 512});

void round_bf16(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const Tensor x = at::randn({state.range(0), state.range(1)});
  for (auto _ : state) benchmark::DoNotOptimize(kernels::round_bf16(x));
  count_bytes(state, 2 * x.numel());
}
BENCHMARK(round_bf16)->Args({1, 512})->Args({4096, 512});

void hadamard_e2m1(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const Tensor x = at::randn({state.range(0), 64, 128});
  for (auto _ : state) benchmark::DoNotOptimize(kernels::hadamard_e2m1(x));
  count_bytes(state, 2 * x.numel());
}
BENCHMARK(hadamard_e2m1)->Arg(1)->Arg(256);

// The bare copy to compare with.
void copy(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const Tensor x = at::randn({state.range(0), state.range(1)});
  for (auto _ : state) benchmark::DoNotOptimize(x.clone());
  count_bytes(state, 2 * x.numel());
}
BENCHMARK(copy)->Args({1, 512})->Args({4096, 512})->Args({4096, 2048});

struct Site {
  Site(int64_t tokens, int64_t d, bool learns) {
    streams = at::randn({tokens, 4, d});
    fn = kernels::Matrix::trainable(at::randn({24, 4 * d}) * 0.02, kernels::cpu::WeightFormat::f32, std::nullopt);
    base = at::randn({24}), scale = at::randn({3}), output = at::randn({tokens, d});
    for (Tensor* leaf : {&streams, &fn.leaf(), &base, &scale, &output}) leaf->requires_grad_(learns);
  }
  Tensor run() const {
    const kernels::HcInput in = kernels::hc_pre(streams, {fn, base, scale}, {20, 1e-6, 1e-6, Rounding::bf16});
    return kernels::hc_post(output + in.input_TD, streams, in.post_TM, in.comb_TMM, Rounding::bf16);
  }
  Tensor streams, base, scale, output;
  kernels::Matrix fn;
};

void hyper_connection(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const Site site(state.range(0), state.range(1), false);
  for (auto _ : state) benchmark::DoNotOptimize(site.run());
  count_bytes(state, 3 * site.streams.numel() + 3 * site.output.numel());
}
BENCHMARK(hyper_connection)->Args({1, 128})->Args({1, 512})->Args({8, 512})->Args({4096, 128})->Args({4096, 512});

void hyper_connection_training(benchmark::State& state) {
  const Site site(state.range(0), state.range(1), true);
  const Tensor dout = at::randn({state.range(0), 4, state.range(1)});
  for (auto _ : state) {
    const Tensor out = site.run();
    benchmark::DoNotOptimize(
        torch::autograd::grad({out}, {site.streams, site.fn.leaf(), site.base, site.scale, site.output}, {dout}));
  }
  count_bytes(state, 3 * 3 * site.streams.numel());
}
BENCHMARK(hyper_connection_training)->Args({1024, 512});

}  // namespace
