#include "report/rollouts.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "report/fixture.h"
#include "report/jsonl.h"

namespace report {
namespace {

TEST(Rollouts, EveryNumberReadsBackToTheBit) {
  const auto path = rollout_path(fresh_folder(), 12);
  EXPECT_EQ(path.filename(), "step_000012.jsonl");
  std::vector<data::Group> groups = {group_of(3, "4*10+2=", {1, 0.1}), group_of(4, "x", {-0.5})};
  groups[0].samples[1].log_probs[0] = std::nextafter(-1.0F, 0.0F);
  groups[0].samples[1].log_probs[1] = -std::numeric_limits<float>::infinity();
  write_rollouts(path, 12, groups);
  const std::vector<data::Group> back = read_rollouts(path);
  ASSERT_EQ(back.size(), 2U);
  for (size_t g = 0; g < groups.size(); ++g) {
    EXPECT_EQ(base::to_line(data::to_json(back[g])), base::to_line(data::to_json(groups[g])));
  }
  const std::vector<base::Json> lines = read_lines(path);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["step"], 12);
  EXPECT_EQ(lines[0]["versions"], base::Json::parse("[[7,2],[8,1]]"));
  EXPECT_EQ(lines[0]["reward_note"], "equals \"42\"");
  EXPECT_NE(text_of(path).find("\"log_probs\":[-0.1,"), std::string::npos) << "f32 in its shortest form";
}

TEST(Rollouts, ATextThatIsNotUtf8IsReplacedNotLost) {
  const auto path = rollout_path(fresh_folder(), 1);
  data::Group group = group_of(1, "p", {1});
  group.samples[0].response =
      "a\xFF"
      "b";
  write_rollouts(path, 1, std::vector<data::Group>{group});
  EXPECT_EQ(read_rollouts(path)[0].samples[0].response,
            "a\xEF\xBF\xBD"
            "b");
}

TEST(Rollouts, AnUnscoredSampleHasNoReward) {
  const auto path = rollout_path(fresh_folder(), 1);
  write_rollouts(path, 1, std::vector<data::Group>{group_of(1, "p", {std::nan("")})});
  EXPECT_TRUE(read_lines(path)[0]["reward"].is_null());
  EXPECT_TRUE(std::isnan(read_rollouts(path)[0].samples[0].reward));
}

TEST(Rollouts, FilesAreListedByWhatTheirNamesSay) {
  const auto folder = fresh_folder();
  for (const char* name :
       {"step_000002.jsonl", "step_000010.jsonl", "eval_aime_24_000010.jsonl", "eval_a_1234567.jsonl", "step_x.jsonl",
        "notes.txt", "step_000003.jsonl.tmp", "eval__1.jsonl", "step_99999999999999999999.jsonl"}) {
    append_text(folder / name, "");
  }
  std::vector<std::string> found;
  for (const RolloutFile& file : list_rollouts(folder)) found.push_back(file.set + ":" + std::to_string(file.step));
  EXPECT_EQ(found, (std::vector<std::string>{":2", ":10", "a:1234567", "aime_24:10"}));
  EXPECT_TRUE(list_rollouts(folder / "no_such").empty());
  EXPECT_EQ(rollout_path(folder, 10, "../x y").filename(), "eval_.._x_y_000010.jsonl");
}

TEST(Rollouts, AHostileFileIsAnErrorThatNamesTheLine) {
  const auto path = rollout_path(fresh_folder(), 1);
  write_rollouts(path, 1, std::vector<data::Group>{group_of(1, "p", {1})});
  const std::string good = text_of(path);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& text :
       {with("[[7,2],[8,1]]", "[[7,1000000000000]]"), with("[[7,2],[8,1]]", "[[7,-1]]"), with("[[7,2],[8,1]]", "7"),
        with("\"finish\":\"stop\"", "\"finish\":\"bored\""), with("-0.1", "\"x\""), with("[5,", "[null,"),
        with("\"seed\"", "\"sead\""), std::string("[]\n"), std::string("{}\n")}) {
    base::write_file_atomic(path, good + text);
    try {
      read_rollouts(path);
      FAIL() << text;
    } catch (const base::Error& error) {
      EXPECT_NE(std::string(error.what()).find("step_000001.jsonl:2"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace report
