// Quantised blocks: against the CPU's simulation to the bit, and against the definition of the format, value by value.
#include "kernels/gpu/quantise.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/expect_error.h"
#include "kernels/cpu/simulate.h"
#include "kernels/gpu/both_orders.h"

namespace {

using test::Floats;
using test::kNan;
using Bytes = std::vector<uint8_t>;
using namespace kernels::gpu;

// By the definition: sign, 4 exponent bits, 3 mantissa bits, bias 7 or 8.
double definition(int code, Encoding encoding) {
  const int bias = encoding == Encoding::ocp ? 7 : 8, field = code >> 3 & 15, mantissa = code & 7;
  const bool nan = encoding == Encoding::ocp ? (code & 0x7f) == 0x7f : code == 0x80;
  const double size = std::ldexp(field == 0 ? mantissa : 8 + mantissa, std::max(field, 1) - bias - 3);
  return nan ? kNan : code < 128 ? size : -size;
}

double scale_of(uint8_t byte) { return byte == 255 ? kNan : std::ldexp(1.0, byte - 127); }

// A row with groups of every kind: small, large, zero, both infinities, NaN, -0, values below the least scale.
Floats hard_values(int64_t count) {
  Floats values = test::noise(count, 3, 2);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t kind = i / 40 % 8;
    if (kind == 1) values[i] *= 1e-30f;
    if (kind == 2) values[i] *= 1e35f;
    if (kind == 3) values[i] = i % 2 == 0 ? 0.0f : -0.0f;
    if (kind == 4) values[i] *= 1e-43f;
    if (kind == 5 && i % 40 == 7) values[i] = i % 80 == 7 ? kNan : -test::kInfinity;
  }
  return values;
}

struct Case {
  int64_t rows, columns, group;
};
constexpr Case kCases[] = {{1, 1, 1}, {3, 7, 3}, {2, 320, 40}, {5, 448, 64}, {4, 1000, 128}, {1, 5000, 128}, {0, 8, 8}};

TEST(GpuQuantise, SimulationIsThatOfTheCpuKernel) {
  for (const auto format : {BlockFormat::e4m3, BlockFormat::e2m1}) {
    for (const Case& c : kCases) {
      const Floats values = hard_values(c.rows * c.columns);
      Floats wanted = test::unset(c.rows * c.columns);
      kernels::cpu::simulate_groups({values.data(), wanted.data(), c.rows, c.columns, c.group}, format);
      test::in_both_orders([&] {
        Floats own = test::unset(c.rows * c.columns), in_place = values;
        simulate_groups({values.data(), own.data(), c.rows, c.columns, c.group}, format, {});
        simulate_groups({in_place.data(), in_place.data(), c.rows, c.columns, c.group}, format, {});
        test::expect_same(own, wanted, "simulated");
        test::expect_same(in_place, wanted, "simulated in place");
      });
    }
  }
}

TEST(GpuQuantise, CodesTimesScalesAreTheSimulatedValuesInBothEncodings) {
  for (const Case& c : kCases) {
    const Floats values = hard_values(c.rows * c.columns);
    const int64_t groups = (c.columns + c.group - 1) / c.group;
    Floats wanted = test::unset(c.rows * c.columns);
    kernels::cpu::simulate_groups({values.data(), wanted.data(), c.rows, c.columns, c.group}, BlockFormat::e4m3);
    for (const Encoding encoding : {Encoding::ocp, Encoding::fnuz}) {
      test::in_both_orders([&] {
        Bytes codes(values.size(), 0xee), scales(static_cast<size_t>(c.rows * groups), 0xee);
        Floats back = test::unset(c.rows * c.columns);
        quantise_groups({values.data(), codes.data(), scales.data(), c.rows, c.columns, c.group, encoding}, {});
        dequantise_blocks(
            {codes.data(), scales.data(), nullptr, back.data(), 1, c.rows, c.columns, 1, c.group, encoding}, {});
        for (size_t i = 0; i < back.size(); ++i) {  // FNUZ has no -0
          if (encoding == Encoding::fnuz && wanted[i] == 0) wanted[i] = 0;
          const auto row = static_cast<int64_t>(i) / c.columns, group = static_cast<int64_t>(i) % c.columns / c.group;
          const double exact =
              definition(codes[i], encoding) * scale_of(scales[static_cast<size_t>(row * groups + group)]);
          if (std::isnan(wanted[i])) continue;
          EXPECT_EQ(exact, static_cast<double>(wanted[i])) << i;
        }
        test::expect_same(back, wanted, "read back");
      });
    }
  }
}

TEST(GpuQuantise, EveryCodeIsReadAsTheFormatDefines) {
  Bytes codes(256);
  for (size_t i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(i);
  for (const Encoding encoding : {Encoding::ocp, Encoding::fnuz}) {
    Floats wanted, values = test::unset(256);
    for (int code = 0; code < 256; ++code) wanted.push_back(static_cast<float>(definition(code, encoding)));
    const uint8_t one = 127;
    dequantise_blocks({codes.data(), &one, nullptr, values.data(), 1, 1, 256, 1, 256, encoding}, {});
    if (encoding == Encoding::ocp) wanted[0x80] = -0.0f;
    test::expect_same(values, wanted, "decoded");
  }
}

// Codes of neighbours a < b: what lies between goes to the nearer, the middle to the even code.
TEST(GpuQuantise, ValuesGoToTheNearestCodeTiesToEven) {
  Floats values = {448};  // the scale is 1
  Bytes wanted = {0x7e};
  for (int code = 0; code < 0x7e; ++code) {
    const auto a = static_cast<float>(definition(code, Encoding::ocp)),
               b = static_cast<float>(definition(code + 1, Encoding::ocp)), middle = (a + b) / 2;
    const auto low = static_cast<uint8_t>(code), high = static_cast<uint8_t>(code + 1),
               even = code % 2 == 0 ? low : high;
    for (const auto& [value, nearest] : {std::pair{a, low},
                                         {std::nextafter(middle, a), low},
                                         {middle, even},
                                         {std::nextafter(middle, b), high},
                                         {b, high}}) {
      values.insert(values.end(), {value, -value});
      wanted.insert(wanted.end(), {nearest, static_cast<uint8_t>(nearest | 0x80)});
    }
  }
  const auto count = static_cast<int64_t>(values.size());
  Bytes codes(values.size());
  uint8_t scale = 0;
  quantise_groups({values.data(), codes.data(), &scale, 1, count, count, Encoding::ocp}, {});
  EXPECT_EQ(scale, 127);
  EXPECT_EQ(codes, wanted);
  Bytes fnuz(values.size());
  quantise_groups({values.data(), fnuz.data(), &scale, 1, count, count, Encoding::fnuz}, {});
  EXPECT_EQ(scale, 128);
  std::replace(wanted.begin(), wanted.end(), 0x80, 0);
  EXPECT_EQ(fnuz, wanted);
}

struct Stack {
  int64_t matrices, rows, columns;
  int64_t down() const { return (rows + 127) / 128; }
  int64_t across() const { return (columns + 127) / 128; }
  size_t scale_at(int64_t i) const {
    const int64_t matrix = i / (rows * columns), row = i / columns % rows, column = i % columns;
    return static_cast<size_t>((matrix * down() + row / 128) * across() + column / 128);
  }
};

TEST(GpuQuantise, WeightsHaveOneScaleForEachBlockOfEachMatrix) {
  for (const Stack& s : {Stack{1, 1, 1}, Stack{1, 128, 128}, Stack{2, 130, 300}, Stack{3, 5, 129}, Stack{1, 0, 4}}) {
    const int64_t count = s.matrices * s.rows * s.columns, blocks = s.matrices * s.down() * s.across();
    Floats values = test::noise(count, 8);
    for (int64_t i = 0; i < count; ++i) {
      if (s.scale_at(i) == 1) values[static_cast<size_t>(i)] *= 1e-20f;
      if (s.scale_at(i) == 4) values[static_cast<size_t>(i)] = i % 2 == 0 ? 0.0f : -0.0f;
    }
    if (count > 0 && s.scale_at(count - 1) > 4) values.back() = -test::kInfinity;
    std::vector<int32_t> amax(static_cast<size_t>(blocks));
    for (int64_t i = 0; i < count; ++i) {
      int32_t& largest = amax[s.scale_at(i)];
      largest = std::max(largest, std::bit_cast<int32_t>(values[static_cast<size_t>(i)]) & 0x7fffffff);
    }
    test::in_both_orders([&] {
      Bytes codes(values.size(), 0xee), scales(amax.size(), 0xee);
      Floats back = test::unset(count);
      quantise_blocks({values.data(), codes.data(), scales.data(), s.matrices, s.rows, s.columns, Encoding::ocp}, {});
      dequantise_blocks({codes.data(), scales.data(), nullptr, back.data(), s.matrices, s.rows, s.columns}, {});
      for (size_t b = 0; b < amax.size(); ++b) {
        const bool finite = amax[b] < 0x7f800000;
        const int wanted = !finite ? 255
                           : amax[b] == 0
                               ? 105
                               : kernels::cpu::scale_byte(amax[b], kernels::cpu::scale_rule(BlockFormat::e4m3));
        EXPECT_EQ(scales[b], wanted) << b;
      }
      for (int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(i);
        const double scale = scale_of(scales[s.scale_at(i)]), exact = static_cast<double>(values[at]);
        if (std::isnan(scale)) {
          EXPECT_TRUE(std::isnan(back[at]));
          continue;
        }
        EXPECT_EQ(back[at], definition(codes[at], Encoding::ocp) * scale);
        // Half a step of the grid: 2^-4 of a normal value, 2^-10 scales of the others.
        EXPECT_NEAR(back[at], exact, std::max(std::abs(exact) * 0x1p-4, scale * 0x1p-10)) << at;
        EXPECT_TRUE(amax[s.scale_at(i)] != 0 || codes[at] == 0) << at;
      }
    });
  }
}

TEST(GpuQuantise, ScalesInF32AreRoundedIntoTheValueOnce) {
  const Bytes codes = {0x38, 0x39, 0xb8, 0x01};  // 1, 1.125, -1, 2^-9
  const Floats scales = {0.3f, -1.7e-3f};
  Floats values = test::unset(4);
  dequantise_blocks({codes.data(), nullptr, scales.data(), values.data(), 1, 2, 2, 1, 2}, {});
  test::expect_same(values, {0.3f, 1.125f * 0.3f, 1.7e-3f, 0x1p-9f * -1.7e-3f}, "values");
}

TEST(GpuQuantise, ImpossibleSizesAreRefused) {
  const auto refused = [](const auto& action) { test::expect_error(base::Code::internal, {"GPU kernel"}, action); };
  refused([] { simulate_groups({nullptr, nullptr, 1, 1, 0}, BlockFormat::e4m3, {}); });
  refused([] { quantise_groups({nullptr, nullptr, nullptr, 1, -1, 128, Encoding::ocp}, {}); });
  refused([] { dequantise_blocks({nullptr, nullptr, nullptr, nullptr, 1, 1, 1}, {}); });  // no scales
}

}  // namespace
