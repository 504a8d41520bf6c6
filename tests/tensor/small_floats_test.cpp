// e4m3, e4m3 FNUZ, e5m2, e2m1 and ue8m0 against a list made by another implementation (ml_dtypes): every code, and for
// every f32 the code that it is rounded to. And FNUZ weights made from OCP ones.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>

#include "base/expect_error.h"
#include "tensor/formats/e2m1.h"
#include "tensor/formats/e4m3.h"
#include "tensor/formats/e4m3_fnuz.h"
#include "tensor/formats/e5m2.h"
#include "tensor/formats/ue8m0.h"
#include "tensor/golden.h"

namespace {

using base::Code;
using tensor::Tensor;

struct SmallFloat {
  const char* name;
  uint8_t sign_bit;
  bool has_minus_zero;
  uint8_t (*from_float)(float);
  float (*to_float)(uint8_t);
  Tensor (*encode)(const Tensor&);
  Tensor (*decode)(const Tensor&);
};
constexpr SmallFloat kFormats[] = {
    {"e4m3", 0x80, true, tensor::e4m3_from_float, tensor::e4m3_to_float, tensor::e4m3_encode, tensor::e4m3_decode},
    {"e4m3_fnuz", 0x80, false, tensor::e4m3_fnuz_from_float, tensor::e4m3_fnuz_to_float, tensor::e4m3_fnuz_encode,
     tensor::e4m3_fnuz_decode},
    {"e5m2", 0x80, true, tensor::e5m2_from_float, tensor::e5m2_to_float, tensor::e5m2_encode, tensor::e5m2_decode},
    {"e2m1", 0x08, true, tensor::e2m1_from_float, tensor::e2m1_to_float, tensor::e2m1_codes, tensor::e2m1_values},
};

base::Json golden_format(const std::string& name) {
  return base::read_json(test::golden("tensor/small_floats.json"))[name];
}

float from_hex_bits(const base::Json& text) {
  return std::bit_cast<float>(static_cast<uint32_t>(std::stoul(text.get<std::string>(), nullptr, 16)));
}

bool same(float value, const base::Json& hex) {
  if (hex == "nan") return std::isnan(value);
  return std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(from_hex_bits(hex));
}

TEST(SmallFloats, EveryCodeDecodesAsTheOtherImplementationSays) {
  for (const SmallFloat& format : kFormats) {
    const base::Json table = golden_format(format.name)["decode_hex"];
    const Tensor decoded = format.decode(at::arange(static_cast<int64_t>(table.size()), at::kInt).to(at::kByte));
    for (size_t code = 0; code < table.size(); ++code) {
      EXPECT_TRUE(same(format.to_float(static_cast<uint8_t>(code)), table[code])) << format.name << " " << code;
      EXPECT_TRUE(same(decoded[static_cast<int64_t>(code)].item<float>(), table[code])) << format.name << " " << code;
    }
  }
  const base::Json table = golden_format("e8m0")["decode_hex"];
  for (size_t code = 0; code < table.size(); ++code)
    EXPECT_TRUE(same(tensor::ue8m0_to_float(static_cast<uint8_t>(code)), table[code])) << code;
}

// Rounding is monotone, so the first value of each code says how every f32 is rounded: tried at each, one f32 below,
// and in the middle of the code's run. Both signs; host and tensor form.
TEST(SmallFloats, EveryBoundaryBetweenCodesIsThatOfTheOtherImplementation) {
  for (const SmallFloat& format : kFormats) {
    std::vector<float> values;
    std::vector<int> wanted;
    const auto expect = [&](float value, int code) {
      values.insert(values.end(), {value, -value});
      wanted.insert(wanted.end(), {code, code == 0 && !format.has_minus_zero ? 0 : code | format.sign_bit});
    };
    const base::Json first = golden_format(format.name)["first_hex"];
    float last = 0;
    expect(0, 0);
    for (size_t i = 0; i < first.size(); ++i) {
      const float begin = from_hex_bits(first[i]);
      ASSERT_LT(last, begin);
      expect(std::nextafter(begin, 0.0f), static_cast<int>(i));
      expect((last + begin) / 2, static_cast<int>(i));
      expect(begin, static_cast<int>(i) + 1);
      last = begin;
    }
    for (const float beyond : {2 * last, 3e38f, INFINITY}) expect(beyond, static_cast<int>(first.size()));  // saturates
    const Tensor encoded = format.encode(at::tensor(values));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(format.from_float(values[i]), wanted[i]) << format.name << " " << values[i];
      ASSERT_EQ(encoded[static_cast<int64_t>(i)].item<uint8_t>(), wanted[i]) << format.name << " " << values[i];
    }
  }
}

TEST(SmallFloats, EveryValueThatBf16HasIsRoundedAsTorchRoundsIt) {
  const Tensor bf16 = at::arange(0x10000, at::kInt).to(at::kShort).view(at::kBFloat16);
  const Tensor values = bf16.masked_select(at::isfinite(bf16)).to(at::kFloat);
  const auto codes = [&](float max, at::ScalarType dtype) { return values.clamp(-max, max).to(dtype).view(at::kByte); };
  const Tensor e4m3 = codes(448, at::kFloat8_e4m3fn), fnuz = codes(240, at::kFloat8_e4m3fnuz),
               e5m2 = codes(57344, at::kFloat8_e5m2);
  for (int64_t i = 0; i < values.numel(); ++i) {
    const float value = values[i].item<float>();
    ASSERT_EQ(tensor::e4m3_from_float(value), e4m3[i].item<uint8_t>()) << value;
    ASSERT_EQ(tensor::e4m3_fnuz_from_float(value), fnuz[i].item<uint8_t>()) << value;
    ASSERT_EQ(tensor::e5m2_from_float(value), e5m2[i].item<uint8_t>()) << value;
  }
}

TEST(SmallFloats, NanStaysNan) {
  for (const SmallFloat& format : kFormats) {
    if (format.sign_bit != 0x80) continue;  // e2m1 has none
    for (const float nan : {std::nanf(""), -std::nanf("")}) {
      EXPECT_TRUE(std::isnan(format.to_float(format.from_float(nan)))) << format.name;
      EXPECT_TRUE(format.decode(format.encode(at::full({1}, nan))).isnan().all().item<bool>()) << format.name;
    }
  }
}

// The value of every code must be the same under both meanings, but for the infinities that neither has.
TEST(Fnuz, EveryOcpCodeKeepsItsValueWhenTheScaleIsDoubled) {
  const Tensor codes = at::arange(256, at::kInt).to(at::kByte);
  const Tensor fnuz = tensor::e4m3_to_fnuz(codes);
  const Tensor before = tensor::e4m3_decode(codes), after = tensor::e4m3_fnuz_decode(fnuz) * 2;
  for (int64_t code = 0; code < 256; ++code) {
    const float a = before[code].item<float>(), b = after[code].item<float>();
    EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << code << ": " << a << " became " << b;
  }
  EXPECT_EQ(fnuz[0x80].item<uint8_t>(), 0);  // -0, not FNUZ's NaN
  EXPECT_EQ(fnuz[0x7f].item<uint8_t>(), 0x80);
  EXPECT_EQ(fnuz[0xff].item<uint8_t>(), 0x80);
}

// code * scale, f32.
Tensor fnuz_values(const tensor::FnuzWeight& weight, int64_t rows, int64_t columns) {
  const Tensor scales = weight.scales.scalar_type() == at::kByte ? tensor::ue8m0_decode(weight.scales) : weight.scales;
  return tensor::e4m3_fnuz_decode(weight.codes) *
         tensor::spread_over_blocks(scales, tensor::BlockFormat::e4m3, rows, columns);
}

TEST(Fnuz, WeightsKeepTheirValuesUnderBothKindsOfScales) {
  Tensor weight = at::randn({130, 200}, at::make_generator<at::CPUGeneratorImpl>(3), at::kFloat);
  weight[0][0] = -1e-9;  // rounds to -0
  tensor::Quantised quantised = tensor::quantise_blocks(weight, tensor::BlockFormat::e4m3);
  EXPECT_EQ(quantised.codes[0][0].item<uint8_t>(), 0x80);
  EXPECT_TRUE(at::equal(fnuz_values(tensor::to_fnuz(quantised), 130, 200), tensor::dequantise_blocks(quantised)));
  quantised.scales = at::tensor({0.1f, 3.0f, 1e-30f, 7e10f}).view({2, 2});
  EXPECT_TRUE(at::equal(fnuz_values(tensor::to_fnuz(quantised), 130, 200), tensor::dequantise_blocks(quantised)));
}

TEST(Fnuz, AScaleThatCannotBeDoubledBecomesNanAndNanStaysNan) {
  const tensor::Quantised one{at::full({1, 1}, 0x38, at::kByte), at::full({1, 1}, 254, at::kByte),
                              tensor::BlockFormat::e4m3};
  EXPECT_EQ(tensor::to_fnuz(one).scales.item<uint8_t>(), 255);
  const tensor::Quantised nan{one.codes, at::full({1, 1}, 255, at::kByte), tensor::BlockFormat::e4m3};
  EXPECT_EQ(tensor::to_fnuz(nan).scales.item<uint8_t>(), 255);
  const tensor::Quantised smallest{one.codes, at::zeros({1, 1}, at::kByte), tensor::BlockFormat::e4m3};
  EXPECT_EQ(fnuz_values(tensor::to_fnuz(smallest), 1, 1).item<float>(), std::ldexp(1.0f, -127));
}

TEST(Fnuz, E2m1IsRefused) {
  test::expect_error(Code::invalid_argument, {"e2m1", "e4m3"}, [] {
    tensor::to_fnuz(tensor::quantise_blocks(at::ones({1, 32}), tensor::BlockFormat::e2m1));
  });
}

}  // namespace
