// Products of rows with the matrix of their expert, by tiles: whatever the routing, each row gets its own matrix.
#include "kernels/reference/experts.h"

#include "kernels/op_checks.h"

namespace {

using test::normal;
using test::Tensor;

TEST(ExpertProducts, EveryRowGetsTheMatrixOfItsExpertHoweverUnevenTheRouting) {
  constexpr int64_t kInputs = 6, kOutputs = 5;
  const std::vector<std::vector<int64_t>> routings = {
      {0}, {3}, {0, 1, 2, 3}, {2, 2, 2, 2, 2, 2, 2, 2, 2}, {0, 0, 0, 0, 0, 0, 0, 3}, {1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3}};
  for (const int64_t experts : {4, 7}) {  // the last ones without rows
    const Tensor weight = normal({experts, kOutputs, kInputs}, 1, at::kDouble);
    for (const std::vector<int64_t>& routing : routings) {
      const auto rows = static_cast<int64_t>(routing.size());
      const Tensor x = normal({rows, kInputs}, 2, at::kDouble), expert = at::tensor(routing, at::kLong);
      const Tensor wanted = at::bmm(weight.index_select(0, expert), x.unsqueeze(2)).squeeze(2);
      EXPECT_LE(test::worst(kernels::reference::expert_products(x, weight, expert), wanted, 1e-14), 1) << rows;
    }
  }
}

TEST(ExpertProducts, NoRowsGiveNoRows) {
  const Tensor y =
      kernels::reference::expert_products(normal({0, 6}, 1), normal({4, 5, 6}, 2), at::empty({0}, at::kLong));
  EXPECT_EQ(y.sizes(), at::IntArrayRef({0, 5}));
}

TEST(ExpertProducts, GradientsMatchFiniteDifferences) {
  const Tensor expert = at::tensor({0, 0, 0, 2, 3, 3}, at::kLong);
  const auto products = [&](const test::Tensors& in) {
    return test::Tensors{kernels::reference::expert_products(in[0], in[1], expert)};
  };
  test::expect_gradients_match_differences(products, {normal({6, 4}, 1), normal({5, 3, 4}, 2)});
}

}  // namespace
