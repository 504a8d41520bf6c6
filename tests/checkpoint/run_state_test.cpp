// The checkpoints of a run survive kills, full disks and damage.
#include "checkpoint/run_state.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <fstream>

#include "base/expect_error.h"
#include "checkpoint/temporary_folder.h"
#include "tensor/golden.h"

namespace {

namespace fs = std::filesystem;
using base::Code;
using checkpoint::LoadedStep;
using checkpoint::Retention;
using checkpoint::RunState;
using checkpoint::StepContents;
using tensor::Tensor;
using test::TemporaryFolder;

Tensor value_of(int64_t step, int64_t size = 100) { return at::arange(size).to(at::kFloat) + static_cast<float>(step); }

StepContents contents_of(int64_t step, std::optional<double> score = {}, int64_t size = 100) {
  StepContents contents;
  contents.tensors = {{"weights.a", at::kFloat, {size}}, {"moments.a", at::kBFloat16, {size}}, {"rng", at::kLong, {1}}};
  contents.fetch = [=](size_t i) {
    if (i == 2) return at::full({1}, step, at::kLong);
    return value_of(step, size).to(i == 0 ? at::kFloat : at::kBFloat16);
  };
  contents.state = {{"step", step}, {"data", {{"epoch", 1}, {"position", step * 32}}}, {"seed", "0123456789abcdef"}};
  contents.score = score;
  return contents;
}

std::vector<int64_t> steps_of(const RunState& run) {
  std::vector<int64_t> steps;
  for (const checkpoint::SavedStep& saved : run.list()) steps.push_back(saved.step);
  return steps;
}

void expect_holds(const LoadedStep& loaded, int64_t step, int64_t size = 100) {
  EXPECT_EQ(loaded.step(), step);
  EXPECT_EQ(loaded.state(), contents_of(step).state);
  EXPECT_TRUE(test::same_bits(loaded.read("weights.a"), value_of(step, size)));
  EXPECT_TRUE(test::same_bits(loaded.read("moments.a"), value_of(step, size).to(at::kBFloat16)));
  EXPECT_EQ(loaded.read("rng").item<int64_t>(), step);
}

TEST(RunState, WhatIsSavedComesBackToTheBit) {
  const TemporaryFolder folder;
  RunState run(folder / "checkpoints", {});
  EXPECT_FALSE(run.load_newest());
  run.save(10, contents_of(10));
  run.save(20, contents_of(20));
  expect_holds(*run.load_newest(), 20);
  expect_holds(run.load(10), 10);
  expect_holds(*RunState(folder / "checkpoints", {}).load_newest(), 20);
}

TEST(RunState, FolderAndParentsAreMadeAndAFileInTheirPlaceIsAnError) {  // case ck-16
  const TemporaryFolder folder;
  RunState run(folder / "not/yet/there", {});
  run.save(1, contents_of(1));
  base::write_file_atomic(folder / "file", "x");
  test::expect_error(Code::invalid_argument, {"file"}, [&] { RunState(folder / "file", {}); });
  test::expect_error(Code::invalid_argument, {"file"}, [&] { RunState(folder / "file/below", {}); });
  test::expect_error(Code::invalid_argument, {"keep_last", "0"},
                     [&] { RunState(folder / "x", Retention{.keep_last = 0}); });
}

TEST(RunState, KeepsTheLastAndTheBest) {
  const TemporaryFolder folder;
  RunState run(folder.path(), Retention{.keep_last = 2, .keep_best = true});
  run.save(1, contents_of(1, 0.1));
  run.save(2, contents_of(2, 0.9));
  run.save(3, contents_of(3, 0.5));
  run.save(4, contents_of(4));
  EXPECT_EQ(steps_of(run), (std::vector<int64_t>{2, 3, 4}));
  run.save(5, contents_of(5, 0.9));  // an equal score: the older stays the best
  EXPECT_EQ(steps_of(run), (std::vector<int64_t>{2, 4, 5}));
  run.save(6, contents_of(6, 0.95));
  run.save(7, contents_of(7));
  run.save(8, contents_of(8));
  EXPECT_EQ(steps_of(run), (std::vector<int64_t>{6, 7, 8}));
  expect_holds(run.load(6), 6);
  RunState last_only(folder.path(), Retention{.keep_last = 1, .keep_best = false});
  last_only.save(9, contents_of(9, 0.2));
  EXPECT_EQ(steps_of(last_only), (std::vector<int64_t>{9}));
}

TEST(RunState, AFailedSaveLeavesTheOnlyCheckpoint) {  // case ck-02
  const TemporaryFolder folder;
  RunState run(folder.path(), Retention{.keep_last = 1, .keep_best = false});
  run.save(1, contents_of(1));
  StepContents failing = contents_of(2);
  failing.fetch = [&, good = failing.fetch](size_t i) {
    return i == 1 ? throw std::runtime_error("device lost") : good(i);
  };
  EXPECT_THROW(run.save(2, failing), std::runtime_error);
  EXPECT_EQ(steps_of(run), (std::vector<int64_t>{1}));
  expect_holds(*run.load_newest(), 1);
  EXPECT_FALSE(fs::exists(folder / "step_000002.tmp"));
}

TEST(RunState, AFullDiskIsRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  int64_t free = int64_t{1} << 40;
  RunState run(folder.path(), Retention{.keep_last = 1}, [&](const fs::path&) { return free; });
  run.save(1, contents_of(1));
  free = 1 << 20;
  test::expect_error(Code::unavailable, {folder.path().string(), "1 MiB free"}, [&] { run.save(2, contents_of(2)); });
  EXPECT_EQ(steps_of(run), (std::vector<int64_t>{1}));
}

TEST(RunState, AnInterruptedSaveIsIgnoredAndRemoved) {  // case ck-01
  const TemporaryFolder folder;
  RunState run(folder.path(), {});
  run.save(10, contents_of(10));
  fs::copy(folder / "step_000010", folder / "step_000020.tmp");
  fs::create_directories(folder / "step_000030");  // copied by hand, without its manifest
  base::write_file_atomic(folder / "step_000030/tensors.safetensors", "x");
  EXPECT_EQ(run.load_newest()->step(), 10);
  RunState resumed(folder.path(), {});
  EXPECT_FALSE(fs::exists(folder / "step_000020.tmp"));
  expect_holds(*resumed.load_newest(), 10);
}

TEST(RunState, OnlyNamesThatItWritesAreSteps) {
  const TemporaryFolder folder;
  RunState run(folder.path(), {});
  run.save(1, contents_of(1));
  for (const char* name : {"step_1", "step_0000001", "step_-00001", "step_00000x", "steps", "step_"}) {
    fs::copy(folder / "step_000001", folder / name);
  }
  EXPECT_EQ(steps_of(run), (std::vector<int64_t>{1}));
  fs::rename(folder / "step_000001", folder / "step_000007");  // a folder under a wrong number
  EXPECT_EQ(steps_of(run), (std::vector<int64_t>{}));
  run.save(1234567, contents_of(1234567));
  expect_holds(*run.load_newest(), 1234567);
}

TEST(RunState, AStepSavedAgainReplacesTheOldOne) {
  const TemporaryFolder folder;
  RunState run(folder.path(), {});
  run.save(5, contents_of(5));
  StepContents other = contents_of(5);
  other.state = {{"again", true}};
  run.save(5, other);
  EXPECT_EQ(run.load(5).state(), other.state);
  EXPECT_FALSE(fs::exists(folder / "step_000005.tmp"));
}

TEST(RunState, StepsAfterAnOlderOneCanBeDiscarded) {
  const TemporaryFolder folder;
  RunState run(folder.path(), Retention{.keep_last = 9});
  for (const int64_t step : {1, 2, 3}) run.save(step, contents_of(step));
  run.discard_after(1);
  EXPECT_EQ(steps_of(run), (std::vector<int64_t>{1}));
}

void flip_bit(const fs::path& path, size_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const auto byte = static_cast<char>(file.get() ^ 1);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

TEST(RunState, ADamagedFileIsNamedWithTheStepToUseInstead) {
  const TemporaryFolder folder;
  RunState run(folder.path(), {});
  for (const int64_t step : {10, 20, 30}) run.save(step, contents_of(step));
  flip_bit(folder / "step_000030/tensors.safetensors", 500);
  test::expect_error(Code::corruption, {"step_000030/tensors.safetensors", "damaged", "resume from step 20"},
                     [&] { run.load_newest(); });
  flip_bit(folder / "step_000020/state.json", 3);
  test::expect_error(Code::corruption, {"step_000030/tensors.safetensors", "resume from step 10"},
                     [&] { run.load_newest(); });
  fs::resize_file(folder / "step_000010/tensors.safetensors", 300);  // case ck-04
  test::expect_error(Code::corruption, {"step_000010/tensors.safetensors", "300 bytes", "no older"},
                     [&] { run.load(10); });
  fs::remove(folder / "step_000010/state.json");
  fs::remove(folder / "step_000010/tensors.safetensors");
  test::expect_error(Code::corruption, {"step_000010", "missing"}, [&] { run.load(10); });
}

TEST(RunState, AStepThatIsNotThereIsNamedWithTheOlderOne) {
  const TemporaryFolder folder;
  RunState run(folder.path(), {});
  run.save(10, contents_of(10));
  test::expect_error(Code::not_found, {"step 15", "resume from step 10"}, [&] { run.load(15); });
  test::expect_error(Code::corruption, {"weights.b"}, [&] { run.load(10).read("weights.b"); });
}

// A child saves step after step until it is killed; whatever was committed before must be there, whole.
TEST(RunState, AKillAtAnyMomentLeavesAWholeCheckpoint) {
  constexpr int kKills = 8;
  constexpr int64_t kSize = 200'000;
  const TemporaryFolder folder;
  int64_t last = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      RunState run(folder.path(), Retention{.keep_last = 1, .keep_best = false});
      for (int64_t step = last + 1;; ++step) {
        run.save(step, contents_of(step, {}, kSize));
        if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      }
    }
    char committed = 0;
    ASSERT_EQ(::read(ready[0], &committed, 1), 1);
    ::usleep(static_cast<useconds_t>(1000 + 3500 * kill));  // somewhere inside a later save
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(ready[1]);
    int64_t num_committed = 1;
    while (::read(ready[0], &committed, 1) == 1) ++num_committed;
    ::close(ready[0]);
    RunState run(folder.path(), Retention{.keep_last = 1, .keep_best = false});
    const std::optional<LoadedStep> newest = run.load_newest();
    ASSERT_TRUE(newest);
    EXPECT_GE(newest->step(), last + num_committed);
    expect_holds(*newest, newest->step(), kSize);
    last = newest->step();
  }
}

}  // namespace
