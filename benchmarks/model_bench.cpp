// Speed of the demo's model: tokens per second of training (forward and backward) and of generation, per precision
// profile, one thread. Beside them one large matrix product: the bound of this core.
#include <benchmark/benchmark.h>

#include <ATen/Parallel.h>

#include "model/transformer.h"

namespace {

using model::Profile;
using tensor::Tensor;

constexpr int64_t kBatch = 256, kLength = 41;
const char* const kProfiles[] = {"f32", "bf16", "fp8"};

model::Weights weights_of(const Profile& profile) {
  const model::Config config =
      model::Config::from_json(base::read_json("recipes/demo_model.json"), "recipes/demo_model.json");
  return model::run_weights(model::Weights::initialise(config, 1), profile);
}

void train(benchmark::State& state) {
  at::set_num_threads(1);
  const Profile profile = Profile::parse(kProfiles[state.range(0)]);
  model::Weights weights = weights_of(profile);
  weights.visit([](const model::TensorInfo& info, Tensor& tensor) {
    if (info.learns) tensor.requires_grad_();
  });
  const auto layout =
      model::Layout::build(weights.config, std::vector<model::Span>(kBatch, {0, kLength, 0}), 0, at::kCPU);
  const Tensor ids = at::randint(0, 17, {kBatch * kLength}), target = at::randint(0, 17, {kBatch * kLength});
  for (auto _ : state) {
    const model::Pass pass{weights, profile, layout, ids};
    const Tensor hidden = model::final_hidden(weights, profile, model::forward_streams(pass));
    at::cross_entropy_loss(model::head_logits(weights, hidden), target).backward();
  }
  state.SetLabel(profile.name);
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * kBatch * kLength), benchmark::Counter::kIsRate);
}
BENCHMARK(train)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

void decode(benchmark::State& state) {
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  const Profile profile = Profile::parse(kProfiles[state.range(0)]);
  const model::Weights weights = weights_of(profile);
  model::Cache cache(weights.config, kBatch, kLength, at::kCPU);
  const Tensor ids = at::randint(0, 17, {kBatch});
  for (auto _ : state) {
    for (int64_t position = 0; position < kLength; ++position) {
      std::vector<model::Span> spans;
      for (int64_t slot = 0; slot < kBatch; ++slot) spans.push_back({position, 1, slot});
      const auto layout = model::Layout::build(weights.config, std::move(spans), kLength, at::kCPU);
      const model::Pass pass{weights, profile, layout, ids, &cache};
      benchmark::DoNotOptimize(
          model::head_logits(weights, model::final_hidden(weights, profile, model::forward_streams(pass))));
    }
  }
  state.SetLabel(profile.name);
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * kBatch * kLength), benchmark::Counter::kIsRate);
}
BENCHMARK(decode)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

void one_large_product(benchmark::State& state) {
  at::set_num_threads(1);
  constexpr int64_t kSize = 1024;
  const Tensor a = at::rand({kSize, kSize}), b = at::rand({kSize, kSize});
  for (auto _ : state) benchmark::DoNotOptimize(at::mm(a, b));
  state.counters["FLOP/s"] = benchmark::Counter(static_cast<double>(state.iterations()) * 2 * kSize * kSize * kSize,
                                                benchmark::Counter::kIsRate);
}
BENCHMARK(one_large_product)->Unit(benchmark::kMillisecond);

}  // namespace
