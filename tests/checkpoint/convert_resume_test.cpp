// A conversion that is stopped anywhere goes on and ends in the same bytes; and what an unfinished one refuses.
#include <gtest/gtest.h>

#include <fstream>

#include "base/expect_error.h"
#include "checkpoint/convert.h"
#include "checkpoint/folders.h"
#include "checkpoint/load.h"
#include "checkpoint/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using base::Code;
using checkpoint::Converted;
using checkpoint::ConvertOptions;
using checkpoint::ConvertProgress;
using test::TemporaryFolder;

constexpr int64_t kShard = 60'000;  // a few files of the tiny model

Converted convert(const fs::path& in, const fs::path& out, const ConvertOptions& options,
                  int64_t calls = int64_t{1} << 40) {
  return checkpoint::convert(in, out, options, [&](const ConvertProgress&) { return --calls > 0; });
}

void save_tiny(const fs::path& folder) {
  checkpoint::save_weights(folder, test::tiny_weights(), checkpoint::SaveAs::bf16);
}

std::map<std::string, std::string> bytes_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    files[entry.path().filename().string()] = base::read_file(entry.path());
  return files;
}

TEST(ConvertResume, StoppedAnywhereItEndsInTheSameBytes) {
  const TemporaryFolder folder;
  save_tiny(folder / "in");
  const ConvertOptions options{.to = "fp8_fp4", .shard_bytes = kShard, .resume = true};
  int64_t num_calls = 0;
  checkpoint::convert(folder / "in", folder / "wanted", options,
                      [&](const ConvertProgress&) { return ++num_calls > 0; });
  const auto wanted = bytes_of(folder / "wanted");
  ASSERT_GT(wanted.size(), 5u);
  size_t most_kept = 0;
  for (int64_t stop = 1; stop < num_calls; stop += 37) {
    const fs::path out = folder / fmt::format("out{}", stop);
    ASSERT_FALSE(convert(folder / "in", out, options, stop).complete);
    EXPECT_FALSE(fs::exists(out));
    for (const auto& [name, bytes] : bytes_of(out.string() + ".partial")) {
      if (name == "convert_state.json") continue;
      EXPECT_EQ(bytes, wanted.at(name)) << name << " is not whole, after " << stop;
    }
    const Converted done = convert(folder / "in", out, options);
    ASSERT_TRUE(done.complete);
    most_kept = std::max(most_kept, done.num_files_kept);
    EXPECT_EQ(bytes_of(out), wanted) << "after " << stop;
    fs::remove_all(out);
  }
  EXPECT_EQ(most_kept, wanted.size() - 2) << "stopped while it verified: all files but index and config were kept";
}

TEST(ConvertResume, APartOfAFileThatAKillLeftBehindIsReplaced) {
  const TemporaryFolder folder;
  save_tiny(folder / "in");
  const ConvertOptions options{.to = "f32", .shard_bytes = kShard, .resume = true};
  convert(folder / "in", folder / "wanted", options);
  convert(folder / "in", folder / "out", options, 30);
  const size_t files = bytes_of(folder / "wanted").size() - 2;
  base::write_file_atomic(folder / fmt::format("out.partial/model-{:05}-of-{:05}.safetensors.tmp", files, files),
                          "half");
  convert(folder / "in", folder / "out", options);
  EXPECT_EQ(bytes_of(folder / "out"), bytes_of(folder / "wanted"));
}

// A conversion to bf16, stopped in the middle, and what going on with it says.
class Unfinished : public testing::Test {
 protected:
  Unfinished() {
    save_tiny(folder_ / "in");
    convert(folder_ / "in", folder_ / "out", options_, 100);
  }
  void expect_refused(const std::vector<std::string>& parts, const ConvertOptions& options,
                      Code code = Code::invalid_argument) {
    test::expect_error(code, parts, [&] { convert(folder_ / "in", folder_ / "out", options); });
    EXPECT_FALSE(fs::exists(folder_ / "out"));
  }
  // The file of that number.
  fs::path shard(int number) const {
    for (const auto& entry : fs::directory_iterator(folder_ / "out.partial")) {
      if (entry.path().filename().string().starts_with(fmt::format("model-{:05}-of", number))) return entry.path();
    }
    ADD_FAILURE() << "there is no file " << number;
    return {};
  }

  TemporaryFolder folder_;
  ConvertOptions options_{.to = "fp8", .shard_bytes = kShard, .resume = true};
};

TEST_F(Unfinished, WithoutResumeItIsRefused) {
  ConvertOptions options = options_;
  options.resume = false;
  expect_refused({"out.partial", "--resume"}, options);
}

TEST_F(Unfinished, OtherOptionsAreRefusedByName) {
  ConvertOptions options = options_;
  options.to = "bf16";
  expect_refused({"out.partial", "to was \"fp8\", it is \"bf16\""}, options);
  options = options_;
  options.names = checkpoint::Names::hf;
  expect_refused({"names was \"native\", it is \"hf\""}, options);
  options = options_;
  options.shard_bytes = 12345;
  expect_refused({"shard_bytes was 60000, it is 12345"}, options);
}

TEST_F(Unfinished, AnotherInputIsRefusedByName) {
  const fs::path file = folder_ / "in/model.safetensors";
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(5));
  expect_refused({"input: model.safetensors: changed_ns"}, options_);
}

TEST_F(Unfinished, AnotherConfigIsRefused) {
  std::ofstream(folder_ / "in/config.json", std::ios::app) << " ";
  expect_refused({"config was"}, options_);
}

TEST_F(Unfinished, AFolderWithoutItsStateIsRefused) {
  fs::remove(folder_ / "out.partial/convert_state.json");
  expect_refused({"out.partial", "convert_state.json"}, options_);
}

TEST_F(Unfinished, AFileWithOtherTensorsIsRefusedByName) {
  tensor::write_safetensors(shard(1), {{"x", at::kFloat, {1}}}, [](size_t) { return at::ones({1}); });
  expect_refused({"model-00001-of", "other tensors"}, options_, Code::corruption);
}

// One bit of one code, so that the value is still a number: only the comparison at the end can see it.
TEST_F(Unfinished, ADamagedFileFailsTheComparisonByTensorAndPlace) {
  for (const auto& entry : fs::directory_iterator(folder_ / "out.partial")) {
    if (entry.path().extension() != ".safetensors") continue;
    const tensor::SafetensorsFile file(entry.path());
    const auto codes = std::find_if(file.tensors().begin(), file.tensors().end(),
                                    [](const auto& stored) { return stored.dtype == at::kFloat8_e4m3fn; });
    if (codes == file.tensors().end()) continue;
    std::string bytes = base::read_file(entry.path());
    int64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), 8);
    bytes[static_cast<size_t>(8 + header_bytes + codes->begin + 3)] ^= 0x10;  // twice or half the value
    base::write_file_atomic(entry.path(), bytes);
    expect_refused({entry.path().filename().string(), codes->name, "row 0, column 3", "in/model.safetensors"}, options_,
                   Code::corruption);
    return;
  }
  FAIL() << "no file of the unfinished folder has e4m3 codes";
}

}  // namespace
