// Checksums and random numbers: both stand in loops over all weights or all tokens.
#include <benchmark/benchmark.h>

#include <vector>

#include "base/hash.h"
#include "base/rng.h"

namespace {

void hash64(benchmark::State& state) {
  const std::vector<std::byte> bytes(static_cast<size_t>(state.range(0)), std::byte{7});
  for (auto _ : state) benchmark::DoNotOptimize(base::hash64(bytes));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(hash64)->Arg(1 << 10)->Arg(1 << 26);

void philox_normals(benchmark::State& state) {
  base::Philox stream(1);
  for (auto _ : state) benchmark::DoNotOptimize(stream.next_normal());
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(philox_normals);

}  // namespace
