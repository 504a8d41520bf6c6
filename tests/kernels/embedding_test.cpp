// Look-up and the gradient of the table.
#include "kernels/embedding.h"

#include "kernels/op_checks.h"
#include "kernels/reference/embedding.h"
#include "tensor/golden.h"

namespace {

using test::normal;
using test::Tensor;

Tensor ids_of(int64_t count, int64_t vocab, uint64_t seed) {
  return at::randint(0, vocab, {count}, at::make_generator<at::CPUGeneratorImpl>(seed), at::kLong);
}

TEST(Embed, CopiesRowsAndRepeatsThem) {
  const Tensor table = normal({20, 7}, 1), ids = at::tensor({3, 0, 19, 3}, at::kLong);
  const Tensor out = kernels::embed(table, ids, 2);
  EXPECT_EQ(out.sizes().vec(), (std::vector<int64_t>{4, 2, 7}));
  for (int64_t t = 0; t < 4; ++t) {
    for (int64_t m = 0; m < 2; ++m) EXPECT_TRUE(at::equal(out[t][m], table[ids[t].item<int64_t>()]));
  }
  EXPECT_TRUE(test::same_bits(out, kernels::reference::embed(table, ids, 2)));
}

// Small whole numbers: every sum is exact, so the gradient is torch's to the bit.
TEST(Embed, GradientEqualsTorchsWhereSumsAreExact) {
  for (const int64_t dim : {1, 5, 8, 33}) {
    const Tensor table = normal({30, dim}, 2).requires_grad_(), ids = ids_of(200, 30, 3);
    const Tensor weights = at::round(normal({200, 3, dim}, 4) * 4);
    (kernels::embed(table, ids, 3) * weights).sum().backward();
    const Tensor fast = table.grad().clone();
    table.mutable_grad().reset();
    (kernels::reference::embed(table, ids, 3) * weights).sum().backward();
    EXPECT_TRUE(at::equal(fast, table.grad()));
  }
}

TEST(Embed, GradientIsOneChainOverAscendingTokens) {
  const Tensor table = at::zeros({3, 1}).requires_grad_(), ids = at::tensor({1, 1, 1}, at::kLong);
  const Tensor weights = at::tensor({1e8f, 1.0f, -1e8f}).view({3, 1, 1});  // another order would keep the 1
  (kernels::embed(table, ids, 1) * weights).sum().backward();
  EXPECT_TRUE(at::equal(table.grad(), at::zeros({3, 1})));
}

TEST(Embed, GradientHasTheSameBitsOnAnyNumberOfThreads) {
  const Tensor table = normal({500, 100}, 5), ids = ids_of(3000, 40, 6);
  const auto run = [&](const test::Tensors& in) { return test::Tensors{kernels::embed(in[0], ids, 4)}; };
  const Tensor wanted = test::gradients(run, {table}, at::kFloat)[0];
  test::for_thread_counts([&] { EXPECT_TRUE(test::same_bits(test::gradients(run, {table}, at::kFloat)[0], wanted)); });
}

TEST(Embed, GradientOfTheDefinitionMatchesDifferences) {
  const Tensor ids = ids_of(9, 4, 7);
  test::expect_gradients_match_differences(
      [&](const test::Tensors& in) { return test::Tensors{kernels::embed(in[0], ids, 2)}; }, {normal({4, 3}, 8)});
}

TEST(Embed, NoTokensGiveNoRowsAndAZeroGradient) {
  const Tensor table = normal({4, 3}, 9).requires_grad_();
  const Tensor out = kernels::embed(table, at::empty({0}, at::kLong), 2);
  EXPECT_EQ(out.sizes().vec(), (std::vector<int64_t>{0, 2, 3}));
  out.sum().backward();
  EXPECT_TRUE(at::equal(table.grad(), at::zeros({4, 3})));
}

TEST(Embed, AnIdOutsideTheTableIsRefused) {
  EXPECT_THROW(kernels::embed(at::ones({4, 2}), at::tensor({4}, at::kLong), 1), base::Error);
  EXPECT_THROW(kernels::embed(at::ones({4, 2}), at::tensor({-1}, at::kLong), 1), base::Error);
}

}  // namespace
