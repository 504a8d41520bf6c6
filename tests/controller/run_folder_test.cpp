// Cases ck-15, ck-16 of tests/golden/cases: a folder that cannot be used is an error at the start.
#include "controller/run_folder.h"

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "base/files.h"
#include "controller/scratch.h"

namespace controller {
namespace {
namespace fs = std::filesystem;
using test::expect_error;

TEST(RunFolder, FirstStartMakesTheFolderAndItsParents) {
  const Scratch scratch;
  const RunFolder folder(scratch.path() / "a" / "b", Opening::start);
  EXPECT_TRUE(fs::is_directory(scratch.path() / "a" / "b"));
}

TEST(RunFolder, SecondProcessIsRefusedAndToldWhoHasIt) {
  const Scratch scratch;
  const RunFolder first(scratch.path() / "run", Opening::start);
  expect_error(base::Code::unavailable, {"in use by process", std::to_string(::getpid())},
               [&] { RunFolder(scratch.path() / "run", Opening::resume); });
}

TEST(RunFolder, LockIsFreeAgainAfterTheOwnerIsGone) {
  const Scratch scratch;
  { const RunFolder first(scratch.path() / "run", Opening::start); }
  const RunFolder second(scratch.path() / "run", Opening::resume);
}

TEST(RunFolder, StartIntoAFolderWithFilesSaysWhatToDo) {
  const Scratch scratch;
  base::write_file_atomic(scratch.path() / "metrics.jsonl", "{}\n");
  expect_error(base::Code::invalid_argument, {"--resume", "run.dir"},
               [&] { RunFolder(scratch.path(), Opening::start); });
}

TEST(RunFolder, FolderOfARunThatWroteNothingCanBeStartedAgain) {
  const Scratch scratch;
  { const RunFolder first(scratch.path() / "run", Opening::start); }  // leaves its lock file
  const RunFolder again(scratch.path() / "run", Opening::start);
}

TEST(RunFolder, FileInThePlaceOfTheFolderIsAnErrorAtTheStart) {
  const Scratch scratch;
  base::write_file_atomic(scratch.path() / "run", "text");
  expect_error(base::Code::invalid_argument, {"is a file"}, [&] { RunFolder(scratch.path() / "run", Opening::start); });
}

TEST(RunFolder, ResumeNeedsARun) {
  const Scratch scratch;
  expect_error(base::Code::not_found, {"no run to resume"},
               [&] { RunFolder(scratch.path() / "none", Opening::resume); });
  EXPECT_FALSE(fs::exists(scratch.path() / "none"));
}

}  // namespace
}  // namespace controller
