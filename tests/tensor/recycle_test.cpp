// Memory that is used again: who holds a tensor keeps it, and only what nobody holds is given out again.
#include "tensor/recycle.h"

#include <gtest/gtest.h>

namespace tensor {
namespace {

TEST(Recycle, SizeClassHoldsTheCountAndWastesAtMostAQuarter) {
  EXPECT_EQ(Recycler::size_class(0), 16);
  EXPECT_EQ(Recycler::size_class(16), 16);
  EXPECT_EQ(Recycler::size_class(17), 20);
  EXPECT_EQ(Recycler::size_class(33), 40);
  EXPECT_EQ(Recycler::size_class(1024), 1024);
  EXPECT_EQ(Recycler::size_class(1025), 1280);
  for (int64_t count = 17; count < 5000; ++count) {
    const int64_t room = Recycler::size_class(count);
    EXPECT_GE(room, count);
    EXPECT_LE(room, count + count / 4 + 1) << count;
  }
}

TEST(Recycle, WhatSomebodyHoldsIsNotGivenOutAgain) {
  const at::NoGradGuard no_grad;
  Recycler recycler;
  const at::Tensor first = recycler.take({4, 8}, at::kFloat);
  const at::Tensor second = recycler.take({4, 8}, at::kFloat);
  EXPECT_NE(first.data_ptr(), second.data_ptr());
  const at::Tensor view = recycler.take({4, 8}, at::kFloat).narrow(0, 1, 2);  // its base is gone, its memory is not
  const at::Tensor third = recycler.take({4, 8}, at::kFloat);
  EXPECT_NE(view.storage().data(), third.storage().data());
}

TEST(Recycle, AnotherShapeOfTheSameClassTakesTheSameMemory) {
  const at::NoGradGuard no_grad;
  Recycler recycler;
  const void* memory = recycler.take({64, 16}, at::kFloat).data_ptr();
  const at::Tensor smaller = recycler.take({2, 450}, at::kFloat);
  EXPECT_EQ(smaller.data_ptr(), memory);
  EXPECT_EQ(smaller.sizes(), at::IntArrayRef({2, 450}));
  EXPECT_TRUE(smaller.is_contiguous());
  EXPECT_NE(recycler.take({2, 450}, at::kInt).data_ptr(), memory);
  EXPECT_EQ(recycler.num_allocations(), 2);
}

TEST(Recycle, AResultThatComesEvery128StepsFindsItsMemory) {
  const at::NoGradGuard no_grad;
  Recycler recycler;
  for (int step = 0; step < 1000; ++step) {
    recycler.take({8, 8}, at::kFloat);
    if (step % 128 == 0) recycler.take({300}, at::kFloat);
    recycler.sweep();
  }
  EXPECT_EQ(recycler.num_allocations(), 2);
}

TEST(Recycle, WhatIsNotTakenAnyMoreIsFreed) {
  const at::NoGradGuard no_grad;
  Recycler recycler;
  const at::Tensor held = recycler.take({1000}, at::kFloat).fill_(3);
  for (int64_t step = 0; step <= Recycler::kKeptSteps; ++step) {
    recycler.take({10}, at::kFloat);
    recycler.sweep();
  }
  EXPECT_EQ(recycler.size_bytes(), 16 * 4);
  EXPECT_EQ(held.sum().item<float>(), 3000);  // its holder still has it
}

TEST(Recycle, OutsideAScopeAndUnderGradientsNothingIsShared) {
  Recycler recycler;
  empty({4});
  {
    const RecycleScope scope(recycler);
    empty({4});
    EXPECT_EQ(recycler.num_allocations(), 0);
    const at::NoGradGuard no_grad;
    empty({4});
    EXPECT_EQ(recycler.num_allocations(), 1);
  }
  const at::NoGradGuard no_grad;
  empty({4});
  EXPECT_EQ(recycler.num_allocations(), 1);
}

}  // namespace
}  // namespace tensor
