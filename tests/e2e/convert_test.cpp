// The program converting a model folder: killed, interrupted, resumed, and measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "checkpoint/folders.h"
#include "checkpoint/save.h"
#include "checkpoint/temporary_folder.h"
#include "e2e/program.h"

namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// The tiny model with a large vocabulary: embedding and head are most of it. bf16.
void save_model(const fs::path& folder, int64_t vocab_size) {
  base::Json config = test::tiny_config_json();
  config["vocab_size"] = vocab_size;
  config["hidden_size"] = 256;
  checkpoint::save_weights(folder, model::Weights::initialise(model::Config::from_json(config, "large"), 3),
                           checkpoint::SaveAs::bf16);
}

std::map<std::string, std::string> bytes_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    files[entry.path().filename().string()] = base::read_file(entry.path());
  return files;
}

std::vector<std::string> call(const fs::path& in, const fs::path& out) {
  return {"convert", in.string(), out.string(), "--to=fp8", "--shard_bytes=2000000", "--resume"};
}

TEST(ConvertProgram, KilledAgainAndAgainItEndsInTheSameBytes) {
  const test::TemporaryFolder folder;
  save_model(folder / "in", 20'000);
  ASSERT_EQ(e2e::run_program(call(folder / "in", folder / "wanted"), folder / "log").code, 0);
  double seconds = 0.4;
  int kills = 0;
  while (!fs::exists(folder / "out") && kills < 50) {
    e2e::Program program(call(folder / "in", folder / "out"), folder / "log");
    if (!program.runs_longer_than(seconds)) {
      ASSERT_EQ(program.code(), 0) << program.output();
      break;
    }
    program.kill_hard();
    ++kills;
    seconds += 0.1;
  }
  EXPECT_GT(kills, 0);
  EXPECT_EQ(bytes_of(folder / "out"), bytes_of(folder / "wanted"));
}

TEST(ConvertProgram, CtrlCSaysHowToGoOn) {
  const test::TemporaryFolder folder;
  save_model(folder / "in", 100'000);
  e2e::Program program(call(folder / "in", folder / "out"), folder / "log");
  while (program.runs_longer_than(0.01) && !fs::exists(folder / "out.partial")) continue;
  program.send(SIGINT);
  EXPECT_EQ(program.wait(), 128 + SIGINT);
  EXPECT_THAT(program.output(), HasSubstr("out.partial. To go on:"));
  EXPECT_THAT(program.output(), HasSubstr("convert " + (folder / "in").string()));
  EXPECT_FALSE(fs::exists(folder / "out"));
  const e2e::Finished finished = e2e::run_program(call(folder / "in", folder / "out"), folder / "log");
  EXPECT_EQ(finished.code, 0) << finished.output;
}

// Most memory that the program has held at a time, in bytes, while it converted.
int64_t peak_of(const std::vector<std::string>& arguments, const fs::path& log) {
  e2e::Program program(arguments, log);
  const auto [code, bytes] = program.wait_measured();
  EXPECT_EQ(code, 0) << program.output();
  return bytes;
}

// The promise: two tensors and a header. The tensors of the large model are 500 times those of the small one, so that
// what the larger needs more is what grows with tensors; it may be two of them and the space of an allocator.
TEST(ConvertProgram, MemoryDoesNotGrowWithTheModel) {
  const test::TemporaryFolder folder;
  constexpr int64_t kVocab = 150'000, kSlack = 48 << 20;
  save_model(folder / "small", 300);
  save_model(folder / "large", kVocab);
  const int64_t tensor = kVocab * 256 * 2;  // embed and head each, bf16
  for (const std::string to : {"fp8", "f32"}) {
    const auto arguments = [&](const std::string& name) {
      return std::vector<std::string>{"convert", (folder / name).string(), (folder / (name + to)).string(),
                                      "--to=" + to};
    };
    const int64_t small = peak_of(arguments("small"), folder / "log"),
                  large = peak_of(arguments("large"), folder / "log");
    EXPECT_LT(large - small, 2 * tensor + kSlack) << to;
    RecordProperty("growth_bytes_" + to, std::to_string(large - small));
  }
}

}  // namespace
