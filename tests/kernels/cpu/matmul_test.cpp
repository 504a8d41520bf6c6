// The products against scalar chains in the order that the header defines (to the bit), and against f64.
#include "kernels/cpu/matmul.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/parallel.h"
#include "kernels/cpu/each_target.h"
#include "kernels/cpu/matmul_operands.h"

namespace kernels::cpu {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::f32, WeightFormat::bf16, WeightFormat::e4m3, WeightFormat::e2m1};

Product product_of(const Weight& weight, const std::vector<float>& x, int64_t m, std::vector<float>& y) {
  Product product;
  product.input = x.data();
  product.input_stride = weight.k;
  product.output = y.data();
  product.output_stride = weight.n;
  product.m = m;
  product.weight = weight.packed();
  return product;
}

std::vector<float> multiplied(const Weight& weight, const std::vector<float>& x, int64_t m, bool round = false) {
  std::vector<float> y(static_cast<size_t>(m * weight.n), -1);
  Product product = product_of(weight, x, m, y);
  product.round_bf16 = round;
  multiply(product);
  return y;
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
        << what << " element " << i << ": " << a[i] << " and " << b[i];
  }
}

TEST(Matmul, EveryElementIsTheChainOfTheHeader) {
  const struct {
    int64_t n, k;
  } shapes[] = {{1, 2}, {3, 34}, {16, 64}, {17, 130}, {40, 256}, {64, 128}, {67, 514}, {150, 78}};
  for (const WeightFormat format : kFormats) {
    for (const auto& shape : shapes) {
      const Weight weight = random_weight(format, shape.n, shape.k, 1);
      const std::vector<float> x = random_input(format, 130, shape.k, 2);
      const std::vector<float> expected = chain(weight, x, 130);
      test::on_each_target([&] {
        for (int64_t m = 1; m <= 130; m += m < 28 ? 1 : 17) {
          expect_same_bits(multiplied(weight, x, m), {expected.begin(), expected.begin() + m * shape.n},
                           describe(weight) + " M " + std::to_string(m));
        }
      });
    }
  }
}

TEST(Matmul, OddKIsSummedWithoutPadding) {
  for (const WeightFormat format : {WeightFormat::f32, WeightFormat::bf16, WeightFormat::e4m3}) {
    for (const int64_t k : {1, 3, 127, 129, 255, 257}) {
      const Weight weight = random_weight(format, 33, k, 3);
      const std::vector<float> x = random_input(format, 30, k, 4);
      for (const int64_t m : {1, 2, 3, 4, 5, 6, 8, 13, 30}) {
        const std::vector<float> expected = chain(weight, x, m);
        test::on_each_target([&] { expect_same_bits(multiplied(weight, x, m), expected, describe(weight)); });
      }
    }
  }
}

TEST(AddOuter, EveryElementIsOneChainOverAscendingRows) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const struct { int64_t m, n, k; } shapes[] = {{1, 1, 1}, {3, 7, 5}, {40, 96, 128}, {300, 13, 35}, {513, 100, 130}};
  for (const auto& shape : shapes) {
    std::vector<float> dy(static_cast<size_t>(shape.m * shape.n)), x(static_cast<size_t>(shape.m * shape.k));
    std::vector<float> out(static_cast<size_t>(shape.n * shape.k));
    for (std::vector<float>* values : {&dy, &x, &out}) {
      for (float& value : *values) value = normal(random);
    }
    for (const bool accumulate : {false, true}) {
      std::vector<float> expected = accumulate ? out : std::vector<float>(out.size());
      for (int64_t m = 0; m < shape.m; ++m) {
        for (int64_t n = 0; n < shape.n; ++n) {
          for (int64_t k = 0; k < shape.k; ++k) {
            float& sum = expected[static_cast<size_t>(n * shape.k + k)];
            sum = std::fma(dy[static_cast<size_t>(m * shape.n + n)], x[static_cast<size_t>(m * shape.k + k)], sum);
          }
        }
      }
      std::vector<float> result = out;
      OuterSum sum;
      sum.dy = dy.data();
      sum.dy_stride = sum.n = shape.n;
      sum.x = x.data();
      sum.x_stride = sum.k = shape.k;
      sum.m = shape.m;
      sum.out = result.data();
      sum.accumulate = accumulate;
      const std::vector<float> before = result;
      test::on_each_target([&] {
        result = before;
        add_outer(sum);
        expect_same_bits(result, expected, "M " + std::to_string(shape.m));
      });
    }
  }
}

}  // namespace
}  // namespace kernels::cpu
