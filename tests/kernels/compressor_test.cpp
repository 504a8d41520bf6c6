// Pooled entries: the kernel against its definition, gradients, and passes over a state in every cut.
#include "kernels/compressor.h"

#include "base/expect_error.h"
#include "kernels/cpu/sequences.h"
#include "kernels/layouts.h"
#include "kernels/reference/compressor.h"
#include "kernels/simulate.h"

namespace test {
namespace {

using kernels::CompressorOptions;
using kernels::CompressorState;
using kernels::EntryGrid;
using kernels::RopeTable;
using kernels::Rounding;

constexpr int64_t kDim = 32;
constexpr double kTolerance = 1e-5;  // normed values of order 1 to 4, some tens of roundings

RopeTable rope_table(int64_t positions) {
  const Tensor angle = at::arange(positions, at::kFloat).unsqueeze(1) * at::tensor({1.0f, 0.3f, 0.1f, 0.03f});
  return {angle.cos(), angle.sin()};
}

struct Weights {
  explicit Weights(const EntryLayout& entries, uint64_t seed)
      : ape(normal({entries.ratio, entries.overlap ? 2 * kDim : kDim}, seed)), norm(normal({kDim}, seed + 1)) {}
  Tensor ape, norm;
};

int64_t channels(const EntryLayout& entries) { return entries.overlap ? 2 * kDim : kDim; }

TEST(Compressor, KernelEqualsTheDefinition) {
  const Layout layout = pass_layout({{0, 37}, {0, 3}, {0, 64}}, 4, false, 16);
  for (const EntryLayout* entries : {&layout.csa, &layout.hca}) {
    const Weights weights(*entries, 1);
    const Tensor kv = normal({layout.num_tokens, channels(*entries)}, 3), score = normal(kv.sizes().vec(), 4);
    const CompressorOptions options;
    const RopeTable table = rope_table(64);
    const Tensor got =
        kernels::pool_entries(kv, score, weights.ape, weights.norm, options, layout, *entries, table, nullptr);
    const auto wide = [](const Tensor& x) { return x.to(at::kDouble); };
    const Tensor exact = kernels::pool_entries(wide(kv), wide(score), wide(weights.ape), wide(weights.norm), options,
                                               layout, *entries, table, nullptr);
    EXPECT_EQ(got.size(0), entries->num_new);
    EXPECT_LE(worst(got, exact, kTolerance), 1);
  }
}

// Rounded and on its grid, an entry is its pooled value put through the ops for rows.
TEST(Compressor, NormTurnAndGridAreThoseOfTheRowOps) {
  const Layout layout = pass_layout({{0, 64}}, 4, false, 16);
  const EntryLayout& entries = layout.csa;
  const Weights weights(entries, 5);
  const Tensor kv = normal({64, 2 * kDim}, 6), score = normal({64, 2 * kDim}, 7);
  const RopeTable table = rope_table(64);
  for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
    const auto pool = [&](EntryGrid grid) {
      return kernels::pool_entries(kv, score, weights.ape, weights.norm, {1e-6, rounding, grid}, layout, entries, table,
                                   nullptr);
    };
    const Tensor plain = pool(EntryGrid::none);
    EXPECT_TRUE(at::equal(pool(EntryGrid::index_e2m1), kernels::hadamard_e2m1(plain)));
    Tensor on_grid = plain.clone();
    on_grid.narrow(1, 0, kDim - 8)
        .copy_(kernels::simulate_groups(plain.narrow(1, 0, kDim - 8).contiguous(), 64, tensor::BlockFormat::e4m3));
    EXPECT_TRUE(at::equal(pool(EntryGrid::kv_e4m3), on_grid));
  }
}

// What a sequence's entries are when it is worked off in these passes, over a state that is poisoned.
Tensor entries_in_passes(const std::vector<Pass>& passes, const Tensor& kv, const Tensor& score, bool overlap,
                         const CompressorOptions& options, int64_t length, bool definition) {
  const int64_t ratio = overlap ? 4 : 8, slot = 2, capacity = length / ratio;
  const Layout sizes = pass_layout({{0, 1, 0}}, 4, true, 8, length);
  const EntryLayout& like = overlap ? sizes.csa : sizes.hca;
  const auto poison = [](std::vector<int64_t> shape) { return at::full(shape, kPoisonValue, at::kFloat); };
  CompressorState state{poison({4, like.rows(), channels(like)}), poison({4, like.rows(), channels(like)}),
                        poison({4, capacity, kDim})};
  const Weights weights(like, 8);
  for (const Pass& pass : passes) {
    std::vector<Span> spans;
    for (const Piece& piece : pass) spans.push_back({piece.start, piece.count, slot});
    const Layout layout = pass_layout(spans, 4, true, 8, length);
    const EntryLayout& entries = overlap ? layout.csa : layout.hca;
    const Tensor kv_T = kv.narrow(0, spans[0].start, spans[0].count),
                 score_T = score.narrow(0, spans[0].start, spans[0].count);
    const auto pool = definition ? kernels::reference::pool_entries : kernels::pool_entries;
    const Tensor added =
        pool(kv_T, score_T, weights.ape, weights.norm, options, layout, entries, rope_table(length), &state);
    EXPECT_EQ(added.defined(), entries.num_new > 0);
    if (added.defined()) {
      EXPECT_TRUE(
          at::equal(added, state.entries_SNK[slot].narrow(0, entries.first_entry(layout.spans[0]), added.size(0))));
    }
  }
  for (const int64_t other : {0, 1, 3}) EXPECT_TRUE(state.entries_SNK[other].isnan().all().item<bool>());
  return state.entries_SNK[slot];
}

TEST(Compressor, EveryCutIntoPassesGivesTheSameEntriesToTheBit) {
  constexpr int64_t kLength = 72;
  base::Philox random(9);
  for (const bool overlap : {true, false}) {
    const Tensor kv = normal({kLength, overlap ? 2 * kDim : kDim}, 10), score = normal(kv.sizes().vec(), 11);
    const Layout whole_layout = pass_layout({{0, kLength}}, 4, false, 8);
    const EntryLayout& entries = overlap ? whole_layout.csa : whole_layout.hca;
    const Weights weights(entries, 8);
    for (const EntryGrid grid : {EntryGrid::none, EntryGrid::kv_e4m3, EntryGrid::index_e2m1}) {
      const CompressorOptions options{1e-6, Rounding::bf16, grid};
      const Tensor all = kernels::pool_entries(kv, score, weights.ape, weights.norm, options, whole_layout, entries,
                                               rope_table(kLength), nullptr);
      std::vector<std::vector<Pass>> cuts = {mixed(random, {kLength})};
      for (const int64_t chunk : {1, 3, 64, 72}) cuts.push_back(in_chunks({kLength}, chunk));
      for (const auto& passes : cuts)
        EXPECT_TRUE(at::equal(entries_in_passes(passes, kv, score, overlap, options, kLength, false), all));
    }
    const CompressorOptions plain;
    const Tensor all = kernels::pool_entries(kv, score, weights.ape, weights.norm, plain, whole_layout, entries,
                                             rope_table(kLength), nullptr);
    const Tensor by_definition = entries_in_passes(in_chunks({kLength}, 5), kv, score, overlap, plain, kLength, true);
    EXPECT_LE(worst(by_definition, all, kTolerance), 1);
  }
}

// kv, score, ape, norm weight -> entries
Function function_of(const Layout& layout, const EntryLayout& entries, const CompressorOptions& options) {
  return [&layout, &entries, options](const Tensors& in) -> Tensors {
    return {kernels::pool_entries(in[0], in[1], in[2], in[3], options, layout, entries, rope_table(64), nullptr)};
  };
}

TEST(Compressor, TheDefinitionHasTheGradientOfItsValues) {
  const Layout layout = pass_layout({{0, 13}, {0, 3}, {0, 9}}, 4, false, 8);
  for (const EntryLayout* entries : {&layout.csa, &layout.hca}) {
    const Weights weights(*entries, 12);
    const Tensor kv = normal({layout.num_tokens, channels(*entries)}, 13), score = normal(kv.sizes().vec(), 14);
    expect_gradients_match_differences(function_of(layout, *entries, {}), {kv, score, weights.ape, weights.norm});
  }
}

TEST(Compressor, KernelGradientsEqualTheDefinitionsWhateverTheThreads) {
  const Layout layout = pass_layout({{0, 61}, {0, 3}, {0, 30}}, 4, false, 8);
  for (const EntryLayout* entries : {&layout.csa, &layout.hca}) {
    const Weights weights(*entries, 15);
    const Tensor kv = normal({layout.num_tokens, channels(*entries)}, 16), score = normal(kv.sizes().vec(), 17);
    const Tensors inputs = {kv, score, weights.ape, weights.norm};
    const Function function = function_of(layout, *entries, {});
    const Tensors wanted = gradients(function, inputs, at::kDouble), first = gradients(function, inputs, at::kFloat);
    for_thread_counts([&] {
      const Tensors got = gradients(function, inputs, at::kFloat);
      for (size_t i = 0; i < got.size(); ++i) {
        const double largest = std::max(1.0, wanted[i].abs().max().item<double>());
        EXPECT_LE(worst(got[i], wanted[i], 5 * kTolerance * largest), 1) << "input " << i;
        EXPECT_TRUE(at::equal(got[i], first[i])) << "input " << i;
      }
    });
  }
}

// With roundings the gradient is that of the values between them: still close to the unrounded one.
TEST(Compressor, RoundingAndGridPassTheGradientOn) {
  const Layout layout = pass_layout({{0, 61}}, 4, false, 8);
  const Weights weights(layout.csa, 18);
  const Tensors inputs = {normal({61, 2 * kDim}, 19), normal({61, 2 * kDim}, 20), weights.ape, weights.norm};
  const Tensors exact = gradients(function_of(layout, layout.csa, {}), inputs, at::kFloat);
  const Tensors rounded =
      gradients(function_of(layout, layout.csa, {1e-6, Rounding::bf16, EntryGrid::kv_e4m3}), inputs, at::kFloat);
  for (size_t i = 0; i < exact.size(); ++i) {
    const double apart = (rounded[i] - exact[i]).norm().item<double>() / exact[i].norm().item<double>();
    EXPECT_LT(apart, 0x1p-7) << "input " << i;  // the pooled value is 2^-9 off at most
  }
}

TEST(Compressor, APassWithoutANewEntryGivesNothing) {
  const Layout layout = pass_layout({{0, 3}}, 4, false, 8);
  const Weights weights(layout.csa, 21);
  Tensor kv = normal({3, 2 * kDim}, 22);
  const auto pool = [&] {
    return kernels::pool_entries(kv, kv, weights.ape, weights.norm, {}, layout, layout.csa, rope_table(8), nullptr);
  };
  EXPECT_FALSE(pool().defined());
  kv.requires_grad_();
  EXPECT_FALSE(pool().defined());
}

TEST(Compressor, ImpossiblePassesAreRefused) {
  const Layout layout = pass_layout({{0, 9}}, 4, false, 8);
  const Weights weights(layout.csa, 23);
  const Tensor kv = normal({9, 2 * kDim}, 24);
  const auto with = [&](const Tensor& rows, const RopeTable& table) {
    return [&weights, &layout, rows, table] {
      kernels::pool_entries(rows, rows, weights.ape, weights.norm, {}, layout, layout.csa, table, nullptr);
    };
  };
  EXPECT_NO_THROW(with(kv, rope_table(9))());
  expect_error(base::Code::internal, {"position 8"}, with(kv, rope_table(8)));
  expect_error(base::Code::internal, {"channels"}, with(kv.narrow(1, 0, kDim), rope_table(9)));
}

}  // namespace
}  // namespace test
