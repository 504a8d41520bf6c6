// Attention: the kernel against its definition by tensor operations, gradients, and what must not be read.
#include "kernels/attention.h"

#include "base/expect_error.h"
#include "kernels/layouts.h"
#include "kernels/reference/attention.h"

namespace test {
namespace {

using kernels::AttentionKeys;
using kernels::Rounding;

// f32 dot products of 32 dims of order 1, softmax over at most 50 keys, sums of values of order 1 to 4: some tens of
// roundings of 2^-24 on values up to 4.
constexpr double kTolerance = 1e-5;
constexpr double kScale = 0.2;

struct Problem {
  Tensor query, sink;
  AttentionKeys keys;
};

struct Kind {
  bool hca = false, csa = false;
  int64_t topk = 0;  // 0: every visible entry
};
const std::vector<Kind> kKinds = {{}, {true, false, 0}, {false, true, 0}, {false, true, 3}};

Problem problem_of(const Layout& layout, const Kind& kind, int64_t heads, int64_t dim, uint64_t seed) {
  constexpr int64_t kSlots = 5;
  Problem problem{normal({layout.num_tokens, heads, dim}, seed), normal({heads}, seed + 1), {}};
  problem.keys.kv_TK = normal({layout.num_tokens, dim}, seed + 2);
  if (layout.cached) problem.keys.ring_SXK = ring_of(layout, kSlots, dim, seed + 3);
  if (!kind.hca && !kind.csa) return problem;
  problem.keys.entry_layout = kind.csa ? &layout.csa : &layout.hca;
  problem.keys.entries_BK = entries_of(layout, *problem.keys.entry_layout, kSlots, dim, seed + 4);
  if (kind.topk > 0) problem.keys.chosen_TA = random_choice(layout, layout.csa, kind.topk, seed + 5);
  return problem;
}

Problem in_double(Problem problem) {
  for (Tensor* tensor :
       {&problem.query, &problem.sink, &problem.keys.kv_TK, &problem.keys.ring_SXK, &problem.keys.entries_BK}) {
    if (tensor->defined()) *tensor = tensor->to(at::kDouble);
  }
  return problem;
}

std::vector<Layout> layouts() {
  return {pass_layout({{0, 70}, {0, 1}, {0, 33}}, 9, false), pass_layout({{0, 5}}, 64, false),
          pass_layout({{61, 1, 3}, {0, 20, 1}, {7, 1, 0}, {30, 13, 4}}, 9, true, 8, 70),
          pass_layout({{40, 1, 2}}, 16, true, 8, 70), pass_layout({{3, 65, 2}, {0, 3, 0}}, 7, true, 8, 70)};
}

Tensor attend(const Problem& problem, const Layout& layout, Rounding rounding = Rounding::none) {
  return kernels::attend(problem.query, problem.keys, problem.sink, kScale, layout, rounding);
}

Tensor defined(const Problem& problem, const Layout& layout, Rounding rounding = Rounding::none) {
  return kernels::reference::attend(problem.query, problem.keys, problem.sink, kScale, layout, rounding);
}

TEST(Attention, KernelEqualsTheDefinitionAndNeitherReadsForeignRows) {
  for (const Layout& layout : layouts()) {
    for (const Kind& kind : kKinds) {
      const Problem problem = problem_of(layout, kind, 3, 32, 1);
      const Tensor exact = defined(in_double(problem), layout);
      EXPECT_FALSE(exact.isnan().any().item<bool>());
      EXPECT_LE(worst(attend(problem, layout), exact, kTolerance), 1);
      EXPECT_LE(worst(defined(problem, layout), exact, kTolerance), 1);
    }
  }
}

TEST(Attention, AnotherDeviceOrDtypeTakesTheDefinition) {
  const Layout layout = layouts()[0];
  const Problem problem = in_double(problem_of(layout, kKinds[3], 2, 8, 2));
  EXPECT_TRUE(at::equal(attend(problem, layout), defined(problem, layout)));
}

TEST(Attention, RoundingIsTheLastStep) {
  const Layout layout = layouts()[0];
  const Problem problem = problem_of(layout, kKinds[1], 4, 32, 3);
  const Tensor exact = attend(problem, layout);
  EXPECT_TRUE(at::equal(attend(problem, layout, Rounding::bf16), exact.to(at::kBFloat16).to(at::kFloat)));
}

TEST(Attention, AChoiceOfAllIsNoChoice) {
  const Layout layout = layouts()[0];
  Problem problem = problem_of(layout, kKinds[2], 2, 16, 4);
  const Tensor all = attend(problem, layout);
  problem.keys.chosen_TA = random_choice(layout, layout.csa, 17, 5);
  EXPECT_TRUE(at::equal(attend(problem, layout), all));
}

TEST(Attention, AChoiceFromElsewhereCanNotReachUnseenEntries) {
  const Layout layout = layouts()[2];
  Problem problem = problem_of(layout, kKinds[3], 2, 16, 6);
  problem.keys.chosen_TA.select(1, 2).fill_(16);  // of 17 that the cache has room for
  const Tensor out = attend(problem, layout);
  EXPECT_FALSE(out.isnan().any().item<bool>());
  EXPECT_LE(worst(out, defined(in_double(problem), layout), kTolerance), 1);
}

TEST(Attention, EntriesMayBeTheWholeCacheInThreeDims) {
  const Layout layout = layouts()[2];
  Problem problem = problem_of(layout, kKinds[1], 2, 16, 7);
  const Tensor three = attend(problem, layout);
  problem.keys.entries_BK = problem.keys.entries_BK.flatten(0, 1);
  EXPECT_TRUE(at::equal(attend(problem, layout), three));
}

// query, kv, sink, entries -> out
Function function_of(const Problem& problem, const Layout& layout, Rounding rounding = Rounding::none) {
  return [problem, &layout, rounding](const Tensors& inputs) -> Tensors {
    Problem at = problem;
    at.query = inputs[0], at.keys.kv_TK = inputs[1], at.sink = inputs[2];
    if (inputs.size() > 3) at.keys.entries_BK = inputs[3];
    return {attend(at, layout, rounding)};
  };
}

Tensors inputs_of(const Problem& problem) {
  Tensors inputs = {problem.query, problem.keys.kv_TK, problem.sink};
  if (problem.keys.entries_BK.defined()) inputs.push_back(problem.keys.entries_BK);
  return inputs;
}

TEST(Attention, TheDefinitionHasTheGradientOfItsValues) {
  const Layout layout = pass_layout({{0, 13}, {0, 2}}, 4, false);
  for (const Kind& kind : kKinds) {
    const Problem problem = problem_of(layout, kind, 2, 6, 8);
    expect_gradients_match_differences(function_of(problem, layout), inputs_of(problem));
  }
}

TEST(Attention, KernelGradientsEqualTheDefinitions) {
  for (const Layout& layout : layouts()) {
    if (layout.cached) continue;
    for (const Kind& kind : kKinds) {
      const Problem problem = problem_of(layout, kind, 5, 20, 9);
      const Function function = function_of(problem, layout), rounded = function_of(problem, layout, Rounding::bf16);
      const Tensors wanted = gradients(function, inputs_of(problem), at::kDouble),
                    exact = gradients(function, inputs_of(problem), at::kFloat),
                    straight = gradients(rounded, inputs_of(problem), at::kFloat);
      for (size_t i = 0; i < wanted.size(); ++i) {
        const double largest = wanted[i].numel() == 0 ? 0 : wanted[i].abs().max().item<double>();
        EXPECT_LE(worst(exact[i], wanted[i], kTolerance * std::max(1.0, largest)), 1) << "input " << i;
        EXPECT_TRUE(at::equal(straight[i], exact[i])) << "input " << i;
      }
    }
  }
}

TEST(Attention, BackwardOutlivesTheLayout) {
  Tensor query = normal({6, 2, 8}, 10).requires_grad_(), out;
  {
    auto layout = std::make_unique<Layout>(pass_layout({{0, 6}}, 3, false));
    Problem problem = problem_of(*layout, {}, 2, 8, 11);
    problem.query = query;
    out = attend(problem, *layout);
  }
  out.sum().backward();
  EXPECT_FALSE(query.grad().isnan().any().item<bool>());
}

TEST(Attention, GradientsDoNotDependOnThreads) {
  const Layout layout = pass_layout({{0, 150}, {0, 61}}, 32, false);
  const Problem problem = problem_of(layout, kKinds[3], 4, 32, 12);
  Tensors first;
  for_thread_counts([&] {
    const Tensors now = gradients(function_of(problem, layout), inputs_of(problem), at::kFloat);
    if (first.empty()) first = now;
    for (size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(at::equal(now[i], first[i])) << "input " << i;
  });
}

TEST(Attention, TheWindowRingIsThatOfTheDefinition) {
  for (const Layout& layout : layouts()) {
    if (!layout.cached) continue;
    const Tensor kv = normal({layout.num_tokens, 8}, 13);
    Tensor ring = ring_of(layout, 5, 8, 14), wanted = ring.clone();
    kernels::keep_window(kv, layout, ring);
    kernels::reference::keep_window(kv, layout, wanted);
    EXPECT_TRUE(at::equal(ring.nan_to_num(-7), wanted.nan_to_num(-7)));
  }
}

TEST(Attention, ImpossiblePassesAreRefused) {
  Layout layout = pass_layout({{9, 2, 1}}, 4, true, 8, 16);
  Problem problem = problem_of(layout, kKinds[1], 2, 8, 15);
  const auto run = [&] { attend(problem, layout); };
  EXPECT_NO_THROW(run());
  const Tensor entries = std::exchange(problem.keys.entries_BK, Tensor());
  expect_error(base::Code::internal, {"entries"}, run);
  problem.keys.entries_BK = entries.narrow(0, 0, 1);
  expect_error(base::Code::internal, {"entries"}, run);
  problem.keys.entries_BK = entries;
  const Tensor ring = std::exchange(problem.keys.ring_SXK, problem.keys.ring_SXK.narrow(0, 0, 1));
  expect_error(base::Code::internal, {"ring"}, run);
  problem.keys.ring_SXK = ring;
  layout.cached = false;
  expect_error(base::Code::internal, {"without a cache"}, run);
  layout.cached = true;
  layout.num_tokens = 3;
  expect_error(base::Code::internal, {"tokens"}, run);
}

}  // namespace
}  // namespace test
