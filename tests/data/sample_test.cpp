// Groups as JSON: every bit comes back.
#include "data/sample.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "data/golden_files.h"

namespace data {
namespace {

using base::Json;
using data_test::error_of;
using testing::HasSubstr;

Group example() {
  Group group;
  group.id = int64_t{1} << 53 | 1;  // not a double
  group.problem = {"f:3", "a\n\"b\" \u00E9", "025", Json::parse(R"({"b": [1, null], "a": 1.5})"), {0, 129279}};
  Sample sample;
  sample.group_id = group.id;
  sample.index = 7;
  sample.seed = UINT64_MAX;
  sample.response_ids = {5, 1};
  sample.log_probs = {-0.1F, -std::numeric_limits<float>::infinity()};
  sample.versions = {3, 4};
  sample.response = "x";
  sample.finish = FinishReason::length;
  sample.reward = 0.1;
  sample.reward_note = "why";
  group.samples = {sample, Sample{}};
  return group;
}

Group round_trip(const Group& group) {
  return group_from_json(base::parse_json(base::to_line(to_json(group)), "t"), "t");
}

TEST(Sample, AGroupComesBackFromItsJson) {
  const Group before = example(), after = round_trip(before);
  EXPECT_EQ(after.id, before.id);
  EXPECT_EQ(after.problem.prompt, before.problem.prompt);
  EXPECT_EQ(after.problem.label, "025");
  EXPECT_EQ(base::to_line(after.problem.metadata), base::to_line(before.problem.metadata));  // order of keys too
  EXPECT_EQ(after.problem.prompt_ids, before.problem.prompt_ids);
  ASSERT_EQ(after.samples.size(), 2U);
  EXPECT_EQ(after.samples[0].seed, UINT64_MAX);
  EXPECT_EQ(after.samples[0].versions, before.samples[0].versions);
  EXPECT_EQ(after.samples[0].finish, FinishReason::length);
  EXPECT_EQ(after.samples[0].reward, 0.1);
  EXPECT_EQ(base::to_line(to_json(after)), base::to_line(to_json(before)));
}

TEST(Sample, FloatsKeepEveryBit) {
  base::Philox random(11);
  Group group;
  Sample& sample = group.samples.emplace_back();
  std::vector<float> values = {0.0F,
                               -0.0F,
                               std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity()};
  while (values.size() < 20000) {
    const float value = std::bit_cast<float>(random.next());
    if (!std::isnan(value)) values.push_back(value);
  }
  sample.log_probs = values;
  sample.response_ids.assign(values.size(), 0);
  sample.versions.assign(values.size(), 0);
  const Group after = round_trip(group);
  ASSERT_EQ(after.samples[0].log_probs.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(after.samples[0].log_probs[i]), std::bit_cast<uint32_t>(values[i])) << values[i];
  }
  sample.log_probs[0] = std::numeric_limits<float>::quiet_NaN();
  sample.reward = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(round_trip(group).samples[0].log_probs[0]));
  EXPECT_TRUE(std::isnan(round_trip(group).samples[0].reward));
}

TEST(Sample, BrokenJsonIsNamed) {
  const auto error_with = [](const std::string& pointer, const Json& value) {
    Json json = to_json(example());
    json[Json::json_pointer(pointer)] = value;
    return error_of([&] { group_from_json(json, "state.json"); });
  };
  EXPECT_THAT(error_with("/id", "x"), HasSubstr("state.json: \"id\" is a text"));
  EXPECT_THAT(error_with("/samples/0/seed", -1), HasSubstr("sample 0: \"seed\""));
  EXPECT_THAT(error_with("/samples/0/response_ids/1", int64_t{1} << 31), HasSubstr("\"response_ids\"[1]"));
  EXPECT_THAT(error_with("/samples/0/versions/1", 0.5), HasSubstr("\"versions\"[1]"));
  EXPECT_THAT(error_with("/samples/0/log_probs/0", "x"), HasSubstr("log_probs"));
  EXPECT_THAT(error_with("/samples/0/finish", "done"), HasSubstr("\"done\""));
  EXPECT_THAT(error_with("/samples/0/log_probs", Json::array()), HasSubstr("2 tokens has 0 log-probs"));
  EXPECT_THAT(error_with("/samples", 1), HasSubstr("\"samples\""));
  EXPECT_THAT(error_of([] { group_from_json(Json::object(), "s"); }), HasSubstr("\"id\" is missing"));
}

}  // namespace
}  // namespace data
