// The indexer's choice: the kernel against its definition, and against scores by hand.
#include "kernels/indexer.h"

#include "base/expect_error.h"
#include "kernels/layouts.h"
#include "kernels/reference/indexer.h"

namespace test {
namespace {

using kernels::IndexerInput;
using kernels::Rounding;

std::vector<Layout> layouts() {
  return {pass_layout({{0, 70}, {0, 1}, {0, 33}}, 9, false), pass_layout({{0, 3}}, 64, false),
          pass_layout({{61, 1, 3}, {0, 20, 1}, {7, 1, 0}, {30, 13, 4}}, 9, true, 8, 70)};
}

// whole: small whole numbers, so that every sum is exact and ties are many.
IndexerInput input_of(const Layout& layout, bool whole, uint64_t seed) {
  const auto draw = [&](std::vector<int64_t> shape, uint64_t at) {
    const Tensor values = normal(shape, seed + at);
    return whole ? values.round() : values;
  };
  const Tensor keys = entries_of(layout, layout.csa, 5, 8, seed + 2);
  return {draw({layout.num_tokens, 6, 8}, 0), draw({layout.num_tokens, 6}, 1), whole ? keys.round() : keys,
          whole ? 1.0 : 0.3};
}

TEST(Indexer, KernelChoosesAsTheDefinition) {
  for (const Layout& layout : layouts()) {
    for (const int64_t topk : {1, 3, 100}) {
      const IndexerInput input = input_of(layout, true, 1);
      const Tensor chosen = kernels::choose_entries(input, topk, layout, layout.csa);
      EXPECT_TRUE(at::equal(chosen, kernels::reference::choose_entries(input, topk, layout, layout.csa)));
      IndexerInput wide = input;
      for (Tensor* tensor : {&wide.query_THI, &wide.weight_TH, &wide.keys_BI}) *tensor = tensor->to(at::kDouble);
      EXPECT_TRUE(at::equal(chosen, kernels::choose_entries(wide, topk, layout, layout.csa)));
    }
  }
}

// One head, one dim: score = weight * max(q k, 0).
TEST(Indexer, ChoicesByHand) {
  const Layout layout = pass_layout({{0, 21}}, 4, false);  // the last token sees 5 entries, the one before too
  IndexerInput input{at::ones({21, 1, 1}), at::ones({21, 1}), at::tensor({1.0f, 3.0f, -2.0f, 3.0f, 3.0f}).view({5, 1})};
  const auto last = [&](int64_t topk) {
    const Tensor row = kernels::choose_entries(input, topk, layout, layout.csa)[20];
    return std::vector<int32_t>(row.const_data_ptr<int32_t>(), row.const_data_ptr<int32_t>() + topk);
  };
  EXPECT_EQ(last(2), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(last(4), (std::vector<int32_t>{0, 1, 3, 4}));
  EXPECT_EQ(last(6), (std::vector<int32_t>{0, 1, 2, 3, 4, -1}));
  input.scale = -1;  // every score is at most 0: the negative product, cut off at 0, is the best
  EXPECT_EQ(last(1), (std::vector<int32_t>{2}));
  EXPECT_EQ(last(3), (std::vector<int32_t>{0, 1, 2}));
}

TEST(Indexer, TheScaledWeightIsRounded) {
  const Layout layout = pass_layout({{0, 12}}, 4, false);
  // Rounded to bf16 both heads weigh 1, and entries 0 and 1 tie; unrounded, entry 1 is better.
  IndexerInput input{at::ones({12, 2, 2}), at::tensor({2.0f, 2.003f}).expand({12, 2}),
                     at::tensor({1.0f, 0.0f, 0.0f, 1.0f, 0.0f, 0.0f}).view({3, 2}), 0.5};
  input.query_THI = at::eye(2).expand({12, 2, 2});
  const auto best = [&](Rounding rounding) {
    input.rounding = rounding;
    const Tensor chosen = kernels::choose_entries(input, 1, layout, layout.csa);
    EXPECT_TRUE(at::equal(chosen, kernels::reference::choose_entries(input, 1, layout, layout.csa)));
    return chosen[11][0].item<int32_t>();
  };
  EXPECT_EQ(best(Rounding::none), 1);
  EXPECT_EQ(best(Rounding::bf16), 0);
}

TEST(Indexer, NothingIsChosenWhereNothingIsVisible) {
  const Layout layout = pass_layout({{0, 3}}, 4, false);
  const IndexerInput input{normal({3, 2, 8}, 1), normal({3, 2}, 2), Tensor()};
  for (const Tensor& chosen : {kernels::choose_entries(input, 2, layout, layout.csa),
                               kernels::reference::choose_entries(input, 2, layout, layout.csa)})
    EXPECT_TRUE(at::equal(chosen, at::full({3, 2}, -1, at::kInt)));
}

TEST(Indexer, NanCountsAsTheLowestScore) {
  const Layout layout = pass_layout({{0, 16}}, 4, false);
  IndexerInput input{at::ones({16, 1, 1}), at::ones({16, 1}), at::ones({4, 1})};
  input.weight_TH.fill_(kPoisonValue);
  const Tensor chosen = kernels::choose_entries(input, 2, layout, layout.csa);
  EXPECT_TRUE(at::equal(chosen[15], at::tensor({0, 1}, at::kInt)));
  EXPECT_TRUE(at::equal(chosen, kernels::reference::choose_entries(input, 2, layout, layout.csa)));
}

TEST(Indexer, ImpossiblePassesAreRefused) {
  const Layout layout = layouts()[2];
  IndexerInput input = input_of(layout, false, 3);
  const auto run = [&] { kernels::choose_entries(input, 2, layout, layout.csa); };
  EXPECT_NO_THROW(run());
  input.keys_BI = input.keys_BI.narrow(0, 0, 2);
  expect_error(base::Code::internal, {"key values"}, run);
  input.keys_BI = Tensor();
  expect_error(base::Code::internal, {"key values"}, run);
}

}  // namespace
}  // namespace test
