#include "compare/weight_difference.h"

#include <gtest/gtest.h>

#include "compare/block_ratios.h"
#include "compare/models.h"

namespace compare {
namespace {

using model::Profile;
using model::RunWeights;
using model::Weights;

WeightComparison compare_masters(const Weights& a, const std::string& profile_a, const Weights& b,
                                 const std::string& profile_b) {
  const Profile pa = Profile::parse(profile_a), pb = Profile::parse(profile_b);
  const RunWeights ra = RunWeights::frozen(a, pa), rb = RunWeights::frozen(b, pb);
  return compare_weights({ra, pa}, {rb, pb}, nullptr, {});
}

TEST(WeightDifference, TheSameMastersAreEqualInEveryProfile) {
  for (const char* profile : {"f32", "bf16", "fp8", "fp8_fp4"}) {
    const WeightComparison found = compare_masters(test::compare_weights(), profile, test::compare_weights(), profile);
    EXPECT_EQ(found.equal, found.tensors) << profile;
    EXPECT_GT(found.tensors, 100);
    EXPECT_TRUE(found.differences.empty());
  }
}

TEST(WeightDifference, ACoarserSideHoldsExactlyWhatTheFinerOneGivesIt) {
  const std::pair<const char*, const char*> pairs[] = {
      {"f32", "bf16"}, {"bf16", "fp8"}, {"fp8_fp4", "bf16"}, {"f32", "fp8"}};
  for (const auto& [a, b] : pairs) {
    const WeightComparison found = compare_masters(test::compare_weights(), a, test::compare_weights(), b);
    EXPECT_TRUE(found.differences.empty()) << a << ", " << b << ": " << found.differences[0].name;
    EXPECT_EQ(found.equal + found.converted, found.tensors);
    EXPECT_GT(found.converted, 10) << a << ", " << b;
  }
}

TEST(WeightDifference, OneBitIsFoundAcrossPrecisions) {
  Weights other = test::compare_weights().clone();
  Tensor& weight = other.layers[3].attn.wkv;
  weight[3][5] = -weight[3][5];
  const WeightComparison found = compare_masters(test::compare_weights(), "f32", other, "fp8");
  ASSERT_EQ(found.differences.size(), 1u);
  EXPECT_EQ(found.differences[0].name, "layers.3.attn.wkv.weight");
  EXPECT_EQ(found.differences[0].kind, WeightKind::values);
  EXPECT_EQ(found.differences[0].text, "1 of 5120 numbers differ");
}

TEST(WeightDifference, TablesAreComparedAsSets) {
  Weights other = test::compare_weights().clone();
  Tensor& table = other.layers[0].ffn.tid2eid;
  table = table.flip(1);  // the order inside a row means nothing
  EXPECT_TRUE(compare_masters(test::compare_weights(), "f32", other, "f32").differences.empty());
  table = 3 - table;
  const WeightComparison renamed = compare_masters(test::compare_weights(), "f32", other, "f32");
  ASSERT_EQ(renamed.differences.size(), 1u);
  EXPECT_EQ(renamed.differences[0].kind, WeightKind::experts_renamed);
  table = test::compare_weights().layers[0].ffn.tid2eid.clone();
  table[9] = at::remainder(table[9] + 1, 4);
  const WeightComparison changed = compare_masters(test::compare_weights(), "f32", other, "f32");
  ASSERT_EQ(changed.differences.size(), 1u);
  EXPECT_EQ(changed.differences[0].kind, WeightKind::table);
  EXPECT_EQ(changed.differences[0].text, "1 of 64 rows differ, first that of token 9");
}

TEST(BlockRatios, LeastSquaresByBlockWithShortEdges) {
  const Tensor a = at::linspace(1, 2, 2 * 130 * 129).view({2, 130, 129});
  Tensor b = a.clone();
  b[0].narrow(0, 0, 128).narrow(1, 0, 128).mul_(4);
  b[1].narrow(0, 128, 2).narrow(1, 128, 1).mul_(0.5);
  b[1].narrow(0, 0, 128).narrow(1, 128, 1).zero_();
  const std::vector<BlockRatio> ratios = block_ratios(a, b, tensor::BlockFormat::e4m3);
  ASSERT_EQ(ratios.size(), 8u);
  const std::vector<double> want = {4, 1, 1, 1, 1, 0, 1, 0.5};
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(ratios[i].ratio, want[i], 1e-12) << i;
    EXPECT_LT(ratios[i].residual, i == 5 ? 2 : 1e-6) << i;
  }
  EXPECT_EQ(ratios[5].residual, 1) << "zero on one side only";
  const BlockRatio zero = block_ratios(at::zeros({2, 2}), at::zeros({2, 2}), tensor::BlockFormat::e4m3)[0];
  EXPECT_TRUE(zero.zero);
}

}  // namespace
}  // namespace compare
