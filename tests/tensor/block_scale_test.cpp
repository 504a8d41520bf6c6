// Block-scaled weights: bytes of the reference dumps, the shared vectors, and properties over hard inputs.
#include "tensor/formats/block_scale.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/expect_error.h"
#include "tensor/formats/e4m3.h"
#include "tensor/formats/ue8m0.h"
#include "tensor/golden.h"

namespace {

using base::Code;
using tensor::BlockFormat;
using tensor::dequantise_blocks;
using tensor::quantise_blocks;
using tensor::Quantised;
using tensor::Tensor;

constexpr BlockFormat kFormats[] = {BlockFormat::e4m3, BlockFormat::e2m1};

Tensor random(const std::vector<int64_t>& shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat);
}

TEST(BlockScale, BytesAndScalesEqualTheReferenceDumps) {
  int seen = 0;
  for (const base::Json& example : test::json_lines("tensor/oracle_quant.jsonl")) {
    const auto shape = example["shape"].get<std::vector<int64_t>>();
    const BlockFormat format = example["format"] == "e4m3" ? BlockFormat::e4m3 : BlockFormat::e2m1;
    const Tensor weight = test::byte_tensor(test::from_hex(example["bf16_hex"]), shape, at::kBFloat16);
    const Tensor codes = test::byte_tensor(test::from_hex(example["codes_hex"]), tensor::code_shape(shape, format));
    const Tensor scales = test::byte_tensor(test::from_hex(example["scales_hex"]), tensor::scale_shape(shape, format));
    const Quantised quantised = quantise_blocks(weight, format);
    EXPECT_TRUE(at::equal(quantised.codes, codes)) << example["name"];
    EXPECT_TRUE(at::equal(quantised.scales, scales)) << example["name"];
    EXPECT_TRUE(at::equal(quantise_blocks(weight.to(at::kFloat), format).codes, codes)) << example["name"];
    ++seen;
  }
  EXPECT_EQ(seen, 6);
}

// Spec 6.5, 6.6: s = 2^ceil(log2(amax / top)); over every mantissa at several exponents, the rule by bits equals the
// definition in f64 and the exponent of the f32 quotient that reference code takes.
TEST(BlockScale, ScaleByBitsIsTheSmallestPowerOfTwoForEveryMantissa) {
  for (const BlockFormat format : kFormats) {
    const double top = format == BlockFormat::e4m3 ? 448 : 6;
    for (const int32_t exponent : {9, 100, 127, 200, 254}) {
      for (int32_t mantissa = 0; mantissa < 0x800000; ++mantissa) {
        const int32_t bits = (exponent << 23) | mantissa;
        const float amax = std::bit_cast<float>(bits);
        const int32_t byte = kernels::cpu::scale_byte(bits, kernels::cpu::scale_rule(format));
        const double scale = std::ldexp(1.0, byte - 127);
        if (!(scale * top >= amax && scale / 2 * top < amax)) FAIL() << amax;
        const int quotient = std::bit_cast<int32_t>(amax / static_cast<float>(top));
        if (byte != (quotient >> 23) + ((quotient & 0x7fffff) != 0 ? 1 : 0)) FAIL() << amax;
      }
    }
  }
}

TEST(BlockScale, ScaleExponentIsClampedForTheSmallestBlocks) {  // decisions 19
  for (const BlockFormat format : kFormats) {
    const Tensor tiny = at::full({1, 4}, std::ldexp(1.0, -140));
    const Quantised quantised = quantise_blocks(tiny, format);
    EXPECT_EQ(quantised.scales.item<uint8_t>(), 0);
    EXPECT_TRUE(at::equal(quantised.codes, at::zeros_like(quantised.codes)));
    EXPECT_TRUE(at::equal(dequantise_blocks(quantised), at::zeros({1, 4})));
  }
}

Quantised from_vector(const base::Json& vector) {
  const auto shape = vector["shape"].get<std::vector<int64_t>>();
  if (vector["kind"] == "fp8") {
    return {at::zeros(shape, at::kByte), at::full(vector["scale_shape"].get<std::vector<int64_t>>(), 127, at::kByte),
            BlockFormat::e4m3};
  }
  const std::string codes = test::from_hex(vector["packed_hex"]), scales = test::from_hex(vector["scale_e8m0_hex"]);
  return {test::byte_tensor(codes, tensor::code_shape(shape, BlockFormat::e2m1)),
          test::byte_tensor(scales, {1, static_cast<int64_t>(scales.size())}), BlockFormat::e2m1};
}

// Each line of quant/vectors.jsonl. Cases q-10, q-11.
void check_vector(const base::Json& vector) {
  const std::string kind = vector["kind"];
  SCOPED_TRACE(vector["id"].get<std::string>());
  if (kind == "e8m0") {
    const float value = tensor::ue8m0_to_float(vector["byte"].get<uint8_t>()),
                wanted = test::to_float(vector["expected"]);
    EXPECT_TRUE(value == wanted || (std::isnan(value) && std::isnan(wanted)));
  } else if (kind == "fp8_cast") {
    const uint8_t code = tensor::e4m3_from_float(vector["input"].get<float>());
    EXPECT_EQ(tensor::e4m3_to_float(code), vector["expected"].get<float>());
  } else if (kind == "ue8m0_scale") {
    const Tensor block = at::full({1, 2}, vector["amax"].get<float>());
    const Tensor scale = tensor::ue8m0_decode(quantise_blocks(block, BlockFormat::e4m3).scales);
    EXPECT_EQ(scale.item<float>(), vector["expected_scale"].get<float>());
  } else if (kind == "fp8_quantize") {
    const Tensor block = at::full({128, 128}, 1e-30f);
    const Tensor back = dequantise_blocks(quantise_blocks(block, BlockFormat::e4m3));
    const double half_step = 1e-30 / 16;  // three mantissa bits
    EXPECT_LE((back - block).abs().max().item<double>(), half_step);
  } else if (vector.contains("bytes_hex")) {
    const Quantised one{test::byte_tensor(test::from_hex(vector["bytes_hex"]), {1, 1}),
                        at::full({1, 1}, 127, at::kByte), BlockFormat::e4m3};
    EXPECT_TRUE(std::isnan(dequantise_blocks(one).item<float>()));  // the loader refuses it by name
  } else if (vector["expected"] == "error") {
    EXPECT_THROW(dequantise_blocks(from_vector(vector)), base::Error);
  } else if (vector["expected"].is_string()) {
    EXPECT_EQ(dequantise_blocks(from_vector(vector)).sizes().vec(), vector["shape"].get<std::vector<int64_t>>());
  } else {
    const Tensor wanted = at::tensor(vector["expected"].get<std::vector<float>>()).view({1, -1});
    EXPECT_TRUE(at::equal(dequantise_blocks(from_vector(vector)), wanted));
  }
}

TEST(BlockScale, SharedVectors) {
  const std::vector<base::Json> vectors = test::json_lines("tensor/vectors.jsonl");
  EXPECT_EQ(vectors.size(), 18u);
  for (const base::Json& vector : vectors) check_vector(vector);
}

TEST(BlockScale, ScalesOfAnotherShapeAreNamedWithTheShapeWanted) {  // case q-11
  test::expect_error(Code::invalid_argument, {"[1, 2]", "[1, 4]", "[1, 1]", "[1, 3]"}, [] {
    dequantise_blocks({at::zeros({1, 2}, at::kByte), at::zeros({1, 3}, at::kByte), BlockFormat::e2m1});
  });
}

TEST(BlockScale, ZeroBlockHasTheFloorScaleAndZeroCodes) {  // case q-01, decisions 3
  Tensor weight = at::zeros({256, 256});
  weight[0][0] = 1;
  weight[200][200] = -0.0f;
  const Quantised quantised = quantise_blocks(weight, BlockFormat::e4m3);
  EXPECT_TRUE(at::equal(quantised.scales.slice(0, 1), at::full({1, 2}, 105, at::kByte)));
  EXPECT_EQ(quantised.codes.count_nonzero().item<int64_t>(), 1);
  EXPECT_TRUE(at::equal(dequantise_blocks(quantised), weight));
  const Quantised small = quantise_blocks(at::full({2, 32}, -0.0f), BlockFormat::e2m1);
  EXPECT_TRUE(at::equal(small.scales, at::full({2, 1}, 105, at::kByte)));
  EXPECT_TRUE(at::equal(small.codes, at::zeros({2, 16}, at::kByte)));
}

TEST(BlockScale, ANegativeThatRoundsToZeroKeepsItsSign) {  // decisions 19
  const Tensor weight = at::tensor({448.0f, -1e-6f}).view({1, 2});
  EXPECT_EQ(quantise_blocks(weight, BlockFormat::e4m3).codes[0][1].item<uint8_t>(), 0x80);
  const Tensor six = at::tensor({6.0f, -1e-6f}).view({1, 2});
  EXPECT_EQ(quantise_blocks(six, BlockFormat::e2m1).codes[0][0].item<uint8_t>(), 0x87);
}

TEST(BlockScale, EachMatrixOfAStackIsQuantisedAlone) {  // decisions 2
  const Tensor stack = random({3, 130, 200}, 1) * at::tensor({1.0f, 100.0f, 0.01f}).view({3, 1, 1});
  for (const BlockFormat format : kFormats) {
    const Quantised whole = quantise_blocks(stack, format);
    for (int64_t e = 0; e < 3; ++e) {
      const Quantised alone = quantise_blocks(stack[e], format);
      EXPECT_TRUE(at::equal(whole.codes[e], alone.codes));
      EXPECT_TRUE(at::equal(whole.scales[e], alone.scales));
    }
    EXPECT_TRUE(at::equal(dequantise_blocks(whole)[1], dequantise_blocks(quantise_blocks(stack[1], format))));
  }
}

TEST(BlockScale, AnEdgeBlockHasItsOwnScale) {
  Tensor weight = at::ones({129, 129});
  weight[128][128] = 1000;
  const Tensor scales = tensor::ue8m0_decode(quantise_blocks(weight, BlockFormat::e4m3).scales);
  EXPECT_EQ(scales[0][0].item<float>(), std::ldexp(1.0f, -8));  // 448 * 2^-8 = 1.75
  EXPECT_EQ(scales[1][1].item<float>(), 4);                     // 448 * 4 = 1792
}

TEST(BlockScale, EachValueMovesAtMostHalfAStepOfItsBlock) {
  const Tensor weight = random({150, 140}, 2) * at::exp(random({150, 1}, 3) * 3);
  for (const BlockFormat format : kFormats) {
    const Quantised quantised = quantise_blocks(weight, format);
    const Tensor error = (dequantise_blocks(quantised) - weight).abs();
    // Relative half step of the mantissa, or half of the smallest step at the scale of its block.
    const double relative = format == BlockFormat::e4m3 ? 1.0 / 16 : 1.0 / 4;
    const double smallest = format == BlockFormat::e4m3 ? std::ldexp(1.0, -10) : 0.25;
    const Quantised unit{at::full_like(quantised.codes, format == BlockFormat::e4m3 ? 0x38 : 0x22), quantised.scales,
                         format};
    const Tensor allowed = at::maximum(weight.abs() * relative, dequantise_blocks(unit) * smallest);
    EXPECT_TRUE((error <= allowed).all().item<bool>());
  }
}

TEST(BlockScale, QuantisingDequantisedValuesChangesNothing) {  // spec 6.5
  const Tensor weight = random({130, 96}, 4) * at::exp(random({130, 96}, 5) * 4);
  for (const BlockFormat format : kFormats) {
    const Tensor once = dequantise_blocks(quantise_blocks(weight, format));
    EXPECT_TRUE(test::same_bits(dequantise_blocks(quantise_blocks(once, format)), once));
    EXPECT_TRUE(at::equal(once.to(at::kBFloat16).to(at::kFloat), once)) << "bf16 holds it exactly (spec 6.3)";
  }
}

TEST(BlockScale, AValueThatIsNotFiniteSpoilsItsBlockVisibly) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    Tensor weight = at::ones({1, 64});
    weight[0][40] = bad;
    const Quantised quantised = quantise_blocks(weight, BlockFormat::e2m1);
    EXPECT_TRUE(at::equal(quantised.scales, at::tensor({125, 255}, at::kByte).view({1, 2})));
    EXPECT_TRUE(dequantise_blocks(quantised).slice(1, 32).isnan().all().item<bool>());
    EXPECT_TRUE(at::equal(dequantise_blocks(quantised).slice(1, 0, 32), at::ones({1, 32})));
  }
}

TEST(BlockScale, RealScalesMultiplyTheCodes) {  // Base checkpoints, spec 6.4
  const Tensor codes = at::randint(0, 127, {200, 130}, at::make_generator<at::CPUGeneratorImpl>(6), at::kByte);
  const Tensor scales = random({2, 2}, 7).abs() + 0.001f;
  const Tensor values = dequantise_blocks({codes, scales, BlockFormat::e4m3});
  for (int64_t r = 0; r < 200; r += 13) {
    for (int64_t c = 0; c < 130; c += 3) {
      const float wanted = tensor::e4m3_to_float(codes[r][c].item<uint8_t>()) * scales[r / 128][c / 128].item<float>();
      ASSERT_EQ(values[r][c].item<float>(), wanted) << r << ", " << c;
    }
  }
}

TEST(BlockScale, ShapesAreThoseOfTheFormat) {
  for (const BlockFormat format : kFormats) {
    const Quantised quantised = quantise_blocks(random({2, 130, 200}, 8), format);
    EXPECT_EQ(quantised.codes.sizes().vec(), tensor::code_shape({2, 130, 200}, format));
    EXPECT_EQ(quantised.scales.sizes().vec(), tensor::scale_shape({2, 130, 200}, format));
  }
  EXPECT_EQ(tensor::scale_shape({2, 130, 200}, BlockFormat::e4m3), (std::vector<int64_t>{2, 2, 2}));
  EXPECT_EQ(tensor::scale_shape({2, 130, 200}, BlockFormat::e2m1), (std::vector<int64_t>{2, 130, 7}));
  EXPECT_EQ(tensor::code_shape({2, 130, 200}, BlockFormat::e2m1), (std::vector<int64_t>{2, 130, 100}));
}

TEST(BlockScale, OtherDtypesAndVectorsAreRefused) {
  test::expect_error(Code::invalid_argument, {"Double", "f32 or bf16"}, [] {
    quantise_blocks(at::zeros({2, 2}, at::kDouble), BlockFormat::e4m3);
  });
  test::expect_error(Code::invalid_argument, {"[4]", "matrix"},
                     [] { quantise_blocks(at::zeros({4}), BlockFormat::e4m3); });
  test::expect_error(Code::invalid_argument, {"[2, 3]", "odd"}, [] {
    quantise_blocks(at::zeros({2, 3}), BlockFormat::e2m1);
  });
}

}  // namespace
