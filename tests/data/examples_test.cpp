// What lies in examples/ is what its pages say: real rows load, and the demo's data hold the sums and the mistakes they
// promise.
#include <gmock/gmock.h>

#include <cstdlib>
#include <set>

#include "base/files.h"
#include "data/dataset.h"
#include "data/golden_files.h"

namespace data {
namespace {

using data_test::fresh_folder;
using data_test::read_rows;
using data_test::source_file;

const Tokenizer& v4() {
  static const Tokenizer tokenizer = Tokenizer::load(data_test::v4_tokenizer_file());
  return tokenizer;
}

Dataset load_example(const std::string& name) {
  DatasetSettings settings;
  settings.path = source_file("examples/data/" + name).string();
  settings.thinking_mode = "thinking";
  settings.max_prompt_tokens = 2048;
  settings.over_length = "error";
  return load_problems(settings, v4());
}

TEST(Examples, RealRowsLoadWithTheRealTokenizer) {
  const Dataset dapo = load_example("dapo_math_17k.54.jsonl");
  ASSERT_EQ(dapo.problems.size(), 54U);
  EXPECT_EQ(dapo.problems[0].label, "34");
  EXPECT_EQ(dapo.report.num_distinct_prompts, 54);
  const Dataset verl = load_example("dapo_verl_form.8.jsonl");
  ASSERT_EQ(verl.problems.size(), 8U);
  EXPECT_EQ(verl.problems[0].label, "5");
  const Dataset aime = load_example("aime_2024.jsonl");
  ASSERT_EQ(aime.problems.size(), 30U);
  EXPECT_EQ(aime.report.num_distinct_prompts, 30);
  for (const Dataset* const dataset : {&dapo, &verl, &aime}) {
    for (const Problem& problem : dataset->problems) {
      EXPECT_EQ(problem.prompt_ids.front(), 0) << problem.id;  // BOS
      EXPECT_EQ(problem.prompt_ids.back(), v4().find_or_fail("<think>")) << problem.id;
      EXPECT_EQ(v4().decode(problem.prompt_ids), problem.prompt) << problem.id;
    }
  }
}

class Addition : public testing::Test {
 protected:
  static std::filesystem::path make(const std::string& arguments) {
    const auto folder = fresh_folder();
    const std::string command =
        fmt::format("python3 '{}' '{}' {} > /dev/null", source_file("examples/addition/make_data.py").string(),
                    folder.string(), arguments);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return folder;
  }
  static DatasetSettings settings_for(const std::filesystem::path& path) {
    DatasetSettings settings;
    settings.path = path.string();
    settings.apply_chat_template = false;
    return settings;
  }
};

// a and b of "<bos>437+285=".
std::pair<int, int> pair_of(const std::string& prompt) {
  int a = -1, b = -1;
  EXPECT_EQ(std::sscanf(prompt.c_str(), "<bos>%3d+%3d=", &a, &b), 2) << prompt;
  return {a, b};
}

TEST_F(Addition, TheSameSeedWritesTheSameBytes) {
  const std::string small = "--num-warmup 50 --num-train 30 --num-heldout 20";
  const auto first = make(small + " --seed 3"), second = make(small + " --seed 3"), other = make(small + " --seed 4");
  for (const std::string name :
       {"tokenizer.json", "tokenizer_config.json", "warmup.jsonl", "train.jsonl", "heldout.jsonl"}) {
    EXPECT_EQ(base::read_file(first / name), base::read_file(second / name)) << name;
  }
  EXPECT_NE(base::read_file(first / "train.jsonl"), base::read_file(other / "train.jsonl"));
}

TEST_F(Addition, ItsTokenizerHasOneTokenACharacter) {
  const Tokenizer tokenizer = Tokenizer::load(make("--num-warmup 1 --num-train 1 --num-heldout 1"));
  EXPECT_EQ(tokenizer.encode("<bos>437+285=", Markers::as_ids), (std::vector<int32_t>{1, 7, 6, 10, 13, 5, 11, 8, 14}));
  EXPECT_EQ(tokenizer.pad_id(), 0);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.stop_ids(), std::vector<int32_t>{2});
  EXPECT_EQ(tokenizer.ids_without_token(32).size(), 15U);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("4+2+1=07;0722", Markers::as_text)), "4+2+1=07;0722");
}

TEST_F(Addition, ProblemsAreSumsAndHeldOutPairsAreDisjoint) {
  const auto folder = make("--num-warmup 3000 --num-train 2000 --num-heldout 300");
  const Tokenizer tokenizer = Tokenizer::load(folder);
  std::set<std::pair<int, int>> pairs;
  for (const std::string name : {"train.jsonl", "heldout.jsonl"}) {
    for (const Problem& problem : load_problems(settings_for(folder / name), tokenizer).problems) {
      const auto [a, b] = pair_of(problem.prompt);
      EXPECT_EQ(problem.label, fmt::format("{:04}", a + b));
      const int carries = (a % 10 + b % 10 > 9) + (a % 100 + b % 100 > 99);
      EXPECT_EQ(problem.metadata["carries"], carries) << problem.prompt;
      EXPECT_EQ(problem.prompt_ids.size(), 9U);
      EXPECT_TRUE(pairs.insert({a, b}).second) << problem.prompt;
    }
  }
  for (const Demonstration& row :
       load_demonstrations(settings_for(folder / "warmup.jsonl"), tokenizer).demonstrations) {
    EXPECT_TRUE(pairs.insert(pair_of(row.prompt)).second) << row.prompt;
    EXPECT_EQ(row.response_ids.size(), 32U);
    EXPECT_EQ(row.response_ids.back(), 2);
  }
  EXPECT_EQ(pairs.size(), 5300U);
}

TEST_F(Addition, DemonstrationsForgetTheStatedShareOfCarriesAndNothingElse) {
  const auto folder = make("--num-warmup 4000 --num-train 1 --num-heldout 1");
  int num_carries = 0, num_forgotten = 0;
  for (const base::Json& row : read_rows(folder / "warmup.jsonl")) {
    auto [a, b] = pair_of(row["prompt"].get<std::string>());
    const std::string response = row["response"];
    int carry = 0, sum = 0, place = 1;
    for (size_t step = 0; step < 3; ++step, place *= 10, a /= 10, b /= 10) {
      int u = -1, v = -1, c = -1, total = -1;
      ASSERT_EQ(std::sscanf(response.c_str() + 9 * step, "%1d+%1d+%1d=%2d", &u, &v, &c, &total), 4) << response;
      EXPECT_EQ(u, a % 10);
      EXPECT_EQ(v, b % 10);
      EXPECT_LE(c, carry);  // a carry may be forgotten, never invented
      EXPECT_EQ(total, u + v + c);
      num_carries += carry;
      num_forgotten += carry - c;
      sum += total % 10 * place;
      carry = total / 10;
    }
    EXPECT_EQ(response.substr(26), fmt::format(";{:04}", sum + carry * 1000)) << response;
  }
  ASSERT_GT(num_carries, 2000);
  EXPECT_NEAR(static_cast<double>(num_forgotten) / num_carries, 0.7,
              0.04);  // about four standard deviations of the estimate
}

}  // namespace
}  // namespace data
