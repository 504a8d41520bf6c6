// e4m3, e2m1 and ue8m0 against tables, against a search for the nearest value, and against torch's own dtype.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/expect_error.h"
#include "tensor/formats/e2m1.h"
#include "tensor/formats/e4m3.h"
#include "tensor/formats/ue8m0.h"
#include "tensor/golden.h"

namespace {

using base::Code;
using tensor::Tensor;

base::Json tables() { return base::read_json(test::golden("tensor/decode_tables.json")); }

Tensor all_bytes() { return at::arange(256, at::kInt).to(at::kByte); }

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Every value at, just below and just above each code of a format and each middle between neighbours, both signs; every
// f32 whose low half is zero; values beyond the range.
std::vector<float> hard_values(const std::vector<float>& magnitudes) {
  std::vector<float> values;
  const auto around = [&](float v) {
    for (const float x : {v, std::nextafter(v, 0.0f), std::nextafter(v, 1e30f)}) values.insert(values.end(), {x, -x});
  };
  for (size_t i = 0; i < magnitudes.size(); ++i) {
    around(magnitudes[i]);
    if (i > 0) around((magnitudes[i - 1] + magnitudes[i]) / 2);
  }
  for (uint32_t high = 0; high < 0x10000; ++high) {
    const float value = std::bit_cast<float>(high << 16);
    if (!std::isnan(value)) values.push_back(value);
  }
  return values;
}

// The nearest code by trying all, ties to the even one; the sign bit on top.
int nearest_code(float value, const std::vector<float>& magnitudes, int sign_bit) {
  const double magnitude =
      std::min(std::fabs(static_cast<double>(value)), 2.0 * magnitudes.back());  // f64 tells all apart
  size_t best = 0;
  for (size_t i = 1; i < magnitudes.size(); ++i) {
    const double now = std::fabs(magnitude - magnitudes[best]), then = std::fabs(magnitude - magnitudes[i]);
    if (then < now || (then == now && i % 2 == 0)) best = i;
  }
  return static_cast<int>(best) | (std::signbit(value) ? sign_bit : 0);
}

TEST(E4m3, EveryByteDecodesAsTheTable) {
  const Tensor decoded = tensor::e4m3_decode(all_bytes());
  const base::Json table = tables()["e4m3fn_by_byte"];
  for (int i = 0; i < 256; ++i) {
    EXPECT_TRUE(same(tensor::e4m3_to_float(static_cast<uint8_t>(i)), test::to_float(table[i]))) << i;
    EXPECT_TRUE(same(decoded[i].item<float>(), test::to_float(table[i]))) << i;
  }
}

TEST(E4m3, EveryTieAndItsNeighboursRoundToTheNearestEvenCode) {
  std::vector<float> magnitudes;
  for (int code = 0; code < 0x7f; ++code) magnitudes.push_back(tensor::e4m3_to_float(static_cast<uint8_t>(code)));
  const std::vector<float> values = hard_values(magnitudes);
  const Tensor encoded = tensor::e4m3_encode(at::tensor(values));
  for (size_t i = 0; i < values.size(); ++i) {
    const int wanted = nearest_code(values[i], magnitudes, 0x80);
    ASSERT_EQ(tensor::e4m3_from_float(values[i]), wanted) << values[i];
    ASSERT_EQ(encoded[static_cast<int64_t>(i)].item<uint8_t>(), wanted) << values[i];
  }
}

TEST(E4m3, NanStaysNanAndInfinitySaturates) {
  EXPECT_EQ(tensor::e4m3_from_float(std::nanf("")) & 0x7f, 0x7f);
  EXPECT_EQ(tensor::e4m3_encode(at::tensor({std::nanf("")})).item<uint8_t>() & 0x7f, 0x7f);
  EXPECT_EQ(tensor::e4m3_from_float(-INFINITY), 0xfe);
}

TEST(E2m1, EveryNibbleDecodesAsTheTable) {
  const base::Json table = tables()["e2m1_by_nibble"];
  const Tensor decoded = tensor::e2m1_values(at::arange(16, at::kInt).to(at::kByte));
  for (int i = 0; i < 16; ++i) {
    EXPECT_TRUE(same(tensor::e2m1_to_float(static_cast<uint8_t>(i)), test::to_float(table[i]))) << i;
    EXPECT_TRUE(same(decoded[i].item<float>(), test::to_float(table[i]))) << i;
  }
}

TEST(E2m1, EveryTieAndItsNeighboursRoundToTheNearestEvenCode) {
  std::vector<float> magnitudes;
  for (int code = 0; code < 8; ++code) magnitudes.push_back(tensor::e2m1_to_float(static_cast<uint8_t>(code)));
  const std::vector<float> values = hard_values(magnitudes);
  const Tensor encoded = tensor::e2m1_codes(at::tensor(values));
  for (size_t i = 0; i < values.size(); ++i) {
    const int wanted = nearest_code(values[i], magnitudes, 8);
    ASSERT_EQ(tensor::e2m1_from_float(values[i]), wanted) << values[i];
    ASSERT_EQ(encoded[static_cast<int64_t>(i)].item<uint8_t>(), wanted) << values[i];
  }
}

TEST(E2m1, LowNibbleIsTheEvenElement) {  // case q-10
  const Tensor byte = at::tensor({0x21}, at::kByte);
  EXPECT_TRUE(at::equal(tensor::e2m1_values(tensor::e2m1_unpack(byte)), at::tensor({0.5f, 1.0f})));
  // Spec appendix B.
  EXPECT_TRUE(
      at::equal(tensor::e2m1_values(tensor::e2m1_unpack(at::tensor({0xa3}, at::kByte))), at::tensor({1.5f, -1.0f})));
}

TEST(E2m1, PackingUndoesUnpackingForEveryByte) {
  const Tensor bytes = all_bytes().view({2, 128});
  EXPECT_TRUE(at::equal(tensor::e2m1_pack(tensor::e2m1_unpack(bytes)), bytes));
}

TEST(E2m1, OddWidthIsRefused) {
  test::expect_error(Code::invalid_argument, {"3", "even"}, [] { tensor::e2m1_pack(at::zeros({2, 3}, at::kByte)); });
}

TEST(Ue8m0, EveryByteDecodesAsTheTable) {  // cases q-03, q-04
  const base::Json table = tables()["e8m0_by_byte"];
  const Tensor decoded = tensor::ue8m0_decode(all_bytes());
  for (int i = 0; i < 256; ++i) {
    EXPECT_TRUE(same(tensor::ue8m0_to_float(static_cast<uint8_t>(i)), test::to_float(table[i]))) << i;
    EXPECT_TRUE(same(decoded[i].item<float>(), test::to_float(table[i]))) << i;
  }
}

TEST(Ue8m0, ReciprocalIsExactForEveryFiniteByte) {
  const Tensor product =
      tensor::ue8m0_decode(all_bytes()).to(at::kDouble) * tensor::ue8m0_reciprocal(all_bytes()).to(at::kDouble);
  EXPECT_TRUE(at::equal(product.slice(0, 0, 255), at::ones({255}, at::kDouble)));
  EXPECT_TRUE(std::isnan(product[255].item<double>()));
}

}  // namespace
