#include "kernels/adamw.h"

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "kernels/reference/adamw.h"

namespace kernels {
namespace {

struct State {
  Tensor master, m, v, grad;
};

State start(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  at::manual_seed(4);
  const auto normal = [&] { return at::randn(sizes, at::kFloat).to(dtype); };
  State state{normal(), normal(), normal(), normal()};
  state.v.square_();
  return state;
}

AdamwStep at_step(int64_t step) {
  AdamwStep settings;
  settings.lr = 1e-3, settings.beta2 = 0.98, settings.decay = 0.1, settings.clip = 0.37, settings.step = step;
  return settings;
}

// Moments to the bit. The reference's square root may err by a last place (a vector mathematics library), so the update
// by a few 2^-24 of it, and the master by one place in each of the 4 steps.
TEST(Adamw, TheKernelFollowsTheReference) {
  for (const int64_t size : {0, 1, 7, 1000, 40003}) {
    State kernel = start({size}), plain = start({size});
    for (int64_t step = 1; step <= 4; ++step) {
      adamw(kernel.master, kernel.m, kernel.v, kernel.grad, at_step(step));
      reference::adamw(plain.master, plain.m, plain.v, plain.grad, at_step(step));
    }
    EXPECT_TRUE(at::allclose(kernel.master, plain.master, 4 * 0x1p-23, 4 * 10e-3 * 0x1p-22)) << size;
    EXPECT_TRUE(at::equal(kernel.m, plain.m)) << size;
    EXPECT_TRUE(at::equal(kernel.v, plain.v)) << size;
  }
}

// Each of the operations of a step errs by 2^-24 of its result; none cancels beyond the size of master + 1.
TEST(Adamw, F32StaysCloseToF64) {
  State narrow = start({5000}), wide = start({5000}, at::kDouble);
  for (int64_t step = 1; step <= 10; ++step) {
    adamw(narrow.master, narrow.m, narrow.v, narrow.grad, at_step(step));
    adamw(wide.master, wide.m, wide.v, wide.grad, at_step(step));
  }
  EXPECT_TRUE(at::allclose(narrow.master.to(at::kDouble), wide.master, 10 * 4 * 0x1p-24, 10 * 0x1p-24));
  EXPECT_TRUE(at::allclose(narrow.m.to(at::kDouble), wide.m, 10 * 4 * 0x1p-24, 10 * 0x1p-24));
  EXPECT_TRUE(at::allclose(narrow.v.to(at::kDouble), wide.v, 10 * 4 * 0x1p-24, 0));
}

TEST(Adamw, TheFirstStepMovesEachWeightByTheRateAgainstTheSignOfItsGradient) {
  Tensor master = at::zeros({3}), m = at::zeros({3}), v = at::zeros({3});
  AdamwStep step;
  step.lr = 0.125;
  adamw(master, m, v, at::tensor({4.0f, -0.001f, 0.0f}), step);
  EXPECT_TRUE(at::allclose(master, at::tensor({-0.125f, 0.125f, 0.0f}), 1e-4, 0));
}

TEST(Adamw, AGradientWithStridesIsReadAsItIs) {
  State dense = start({40, 30}), strided = start({40, 30});
  const Tensor grad = dense.grad.t().contiguous().t();
  ASSERT_FALSE(grad.is_contiguous());
  adamw(dense.master, dense.m, dense.v, dense.grad, at_step(3));
  adamw(strided.master, strided.m, strided.v, grad, at_step(3));
  EXPECT_TRUE(at::equal(dense.master, strided.master));
}

TEST(Adamw, RefusesTensorsThatDoNotBelongTogether) {
  State state = start({8});
  EXPECT_THROW(adamw(state.master, state.m, state.v, at::ones({4}), at_step(1)), base::Error);
  EXPECT_THROW(adamw(state.master, state.m, state.v, state.grad.to(at::kDouble), at_step(1)), base::Error);
  EXPECT_THROW(adamw(state.master, state.m, state.v, state.grad, at_step(0)), base::Error);
}

TEST(SumOfSquares, SumsInF64AndDoesNotDependOnThreads) {
  EXPECT_EQ(sum_of_squares(at::ones({3 * 4096 + 17})), 3 * 4096 + 17);
  EXPECT_EQ(sum_of_squares(at::full({4}, 1e30f)), 4 * std::pow(double{1e30f}, 2));  // beyond f32
  EXPECT_EQ(sum_of_squares(at::empty({0})), 0);
  at::manual_seed(11);
  const Tensor grad = at::randn({1 << 19});
  const int before = base::num_threads();
  base::set_num_threads(1);
  const double one = sum_of_squares(grad);
  base::set_num_threads(3);
  const double three = sum_of_squares(grad);
  base::set_num_threads(before);
  EXPECT_EQ(one, three);
}

// 2^19 terms of one sign in f64.
TEST(SumOfSquares, AgreesWithTheReferenceForEveryFloatingType) {
  at::manual_seed(12);
  const Tensor values = at::randn({100, 123});
  const double want = values.to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(sum_of_squares(values), want, 1e-12 * want);
  EXPECT_NEAR(reference::sum_of_squares(values), want, 1e-12 * want);
  EXPECT_NEAR(sum_of_squares(values.t()), want, 1e-12 * want);
  EXPECT_NEAR(sum_of_squares(values.to(at::kDouble)), want, 1e-12 * want);
  const Tensor half = values.to(at::kBFloat16);
  EXPECT_NEAR(sum_of_squares(half), half.to(at::kDouble).square().sum().item<double>(), 1e-12 * want);
}

}  // namespace
}  // namespace kernels
