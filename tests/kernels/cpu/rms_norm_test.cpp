// Norms and turns of rows without torch: odd sizes, on every instruction set that this machine has.
#include "kernels/cpu/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/each_target.h"

namespace {

using kernels::cpu::NormRows;

struct Sizes {
  int64_t rows, k, pairs, heads;
};
constexpr Sizes kSizes[] = {{0, 4, 0, 1}, {1, 1, 0, 1}, {3, 7, 3, 1}, {17, 33, 5, 1}, {6, 24, 12, 3}, {34, 19, 8, 2}};

struct Operands {
  explicit Operands(const Sizes& sizes)
      : x(test::noise(sizes.rows * sizes.k, 1)),
        weight(test::noise(sizes.k, 2)),
        dy(test::noise(sizes.rows * sizes.k, 3)),
        cos(test::noise(4 * sizes.pairs, 4)),
        sin(test::noise(4 * sizes.pairs, 5)) {
    for (int64_t t = 0; t <= sizes.rows; ++t) position.push_back(static_cast<int32_t>(t % 4));
    rows.x = x.data(), rows.weight = weight.data(), rows.rows = sizes.rows, rows.k = sizes.k, rows.eps = 1e-6f;
    rows.turn.cos = cos.data(), rows.turn.sin = sin.data(), rows.turn.position = position.data();
    rows.turn.pairs = sizes.pairs, rows.turn.rows_per_token = sizes.heads;
  }
  std::vector<float> x, weight, dy, cos, sin;
  std::vector<int32_t> position;
  NormRows rows;
};

TEST(NormRowsOnCpu, StayInsideTheirRowsAndAgreeBetweenInstructionSets) {
  for (const Sizes& sizes : kSizes) {
    Operands in(sizes);
    std::vector<std::vector<float>> values, slopes;
    test::on_each_target([&] {
      std::vector<float> y(in.x.size()), dx(in.x.size()), dweight(in.weight.size());
      for (const bool round : {true, false}) {
        in.rows.round_bf16 = round, in.rows.simulated = round ? 64 : 0;
        kernels::cpu::rms_norm(in.rows, y.data());
      }
      kernels::cpu::rms_norm_backward(in.rows, in.dy.data(), dx.data(), dweight.data());
      kernels::cpu::rms_norm_backward(in.rows, in.dy.data(), nullptr, dweight.data());
      dx.insert(dx.end(), dweight.begin(), dweight.end());
      values.push_back(y), slopes.push_back(dx);
    });
    // Fused and separate multiply-adds differ in the last bits of values that stay below 100.
    for (const auto& of_target : values) test::expect_close(of_target, values[0], 2e-5f);
    for (const auto& of_target : slopes) test::expect_close(of_target, slopes[0], 2e-5f);
  }
}

TEST(NormRowsOnCpu, ATurnedBackRowIsTheNormAlone) {
  const float angle = 0.7f, cosine = std::cos(angle), sine = std::sin(angle);
  const std::vector<float> x = {1, 2, 3, 4};
  const int32_t position = 0;
  NormRows rows;
  rows.x = x.data(), rows.rows = 1, rows.k = 4;
  rows.turn.cos = &cosine, rows.turn.sin = &sine, rows.turn.position = &position, rows.turn.pairs = 1;
  test::on_each_target([&] {
    std::vector<float> y(4), back(4);
    kernels::cpu::rms_norm(rows, y.data());
    kernels::cpu::TurnedRows turned;
    turned.x = y.data(), turned.y = back.data(), turned.rows = 1, turned.k = 4, turned.turn = rows.turn;
    turned.turn.inverse = true;
    kernels::cpu::rotate(turned);
    const float rinv = 1 / std::sqrt(7.5f);
    test::expect_close(back, {rinv, 2 * rinv, 3 * rinv, 4 * rinv}, 1e-6f);
    turned.y = y.data();  // in place
    kernels::cpu::rotate(turned);
    EXPECT_EQ(y, back);
  });
}

}  // namespace
