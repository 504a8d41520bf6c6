// Norms and turns of rows against the CPU kernels, to the bit.
#include "kernels/gpu/rms_norm.h"

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "kernels/gpu/both_orders.h"

namespace {

using kernels::cpu::NormRows;
using test::Floats;

struct Sizes {
  int64_t rows, k, pairs, heads, simulated;
};
constexpr Sizes kSizes[] = {{0, 4, 0, 1, 0},    {1, 1, 0, 1, 0},     {3, 7, 3, 1, 0},     {17, 33, 5, 1, 0},
                            {6, 24, 12, 3, 0},  {12, 512, 32, 4, 0}, {5, 512, 32, 1, 64}, {2, 4096, 0, 1, 0},
                            {2, 7168, 0, 1, 0}, {1, 9001, 8, 1, 64}};

struct Operands {
  explicit Operands(const Sizes& sizes)
      : x(test::noise(sizes.rows * sizes.k, 1, 3)),
        weight(test::noise(sizes.k, 2)),
        cos(test::noise(4 * sizes.pairs, 4)),
        sin(test::noise(4 * sizes.pairs, 5)) {
    for (int64_t t = 0; t <= sizes.rows; ++t) position.push_back(static_cast<int32_t>(t % 4));
    rows.x = x.data(), rows.weight = weight.data(), rows.rows = sizes.rows, rows.k = sizes.k, rows.eps = 1e-6f;
    rows.turn.cos = cos.data(), rows.turn.sin = sin.data(), rows.turn.position = position.data();
    rows.turn.pairs = sizes.pairs, rows.turn.rows_per_token = sizes.heads;
    rows.simulated = sizes.simulated;
  }
  Floats x, weight, cos, sin;
  std::vector<int32_t> position;
  NormRows rows;
};

TEST(GpuRmsNorm, NormTurnAndSimulationAreThoseOfTheCpuKernel) {
  SKIP_WITHOUT_FMA();
  for (const Sizes& sizes : kSizes) {
    Operands in(sizes);
    for (const bool weighted : {true, false}) {
      for (const bool round : {true, false}) {
        in.rows.weight = weighted ? in.weight.data() : nullptr;
        in.rows.round_bf16 = round;
        Floats wanted = test::unset(sizes.rows * sizes.k);
        kernels::cpu::rms_norm(in.rows, wanted.data());
        test::in_both_orders([&] {
          Floats own = test::unset(sizes.rows * sizes.k);
          kernels::gpu::rms_norm(in.rows, own.data(), {});
          test::expect_same(own, wanted, "y");
        });
      }
    }
  }
}

TEST(GpuRmsNorm, ANaNStaysInItsRow) {
  Operands in(kSizes[5]);
  in.x[512 + 3] = test::kNan;
  Floats own = test::unset(12 * 512);
  kernels::gpu::rms_norm(in.rows, own.data(), {});
  for (int64_t i = 0; i < 12 * 512; ++i) EXPECT_EQ(std::isnan(own[static_cast<size_t>(i)]), i / 512 == 1) << i;
}

TEST(GpuRotate, TurnsAreThoseOfTheCpuKernelBothWaysAndInPlace) {
  for (const Sizes& sizes : kSizes) {
    const Operands in(sizes);
    for (const bool inverse : {true, false}) {
      for (const bool round : {true, false}) {
        Floats wanted = test::unset(sizes.rows * sizes.k);
        kernels::cpu::TurnedRows rows;
        rows.x = in.x.data(), rows.y = wanted.data(), rows.rows = sizes.rows, rows.k = sizes.k;
        rows.turn = in.rows.turn, rows.turn.inverse = inverse, rows.round_bf16 = round;
        kernels::cpu::rotate(rows);
        test::in_both_orders([&] {
          Floats own = test::unset(sizes.rows * sizes.k), in_place = in.x;
          rows.y = own.data();
          kernels::gpu::rotate(rows, {});
          test::expect_same(own, wanted, "y");
          kernels::cpu::TurnedRows same = rows;
          same.x = same.y = in_place.data();
          kernels::gpu::rotate(same, {});
          test::expect_same(in_place, wanted, "y in place");
        });
      }
    }
  }
}

TEST(GpuRmsNorm, MorePairsThanARowHoldsAreRefused) {
  Operands in(kSizes[2]);
  in.rows.turn.pairs = 4;
  test::expect_error(base::Code::internal, {"pairs", "4, 7"}, [&] { kernels::gpu::rms_norm(in.rows, nullptr, {}); });
}

}  // namespace
