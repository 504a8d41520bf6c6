// Files that appear whole, and the limits on what is read.
#include "base/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/expect_error.h"

namespace {

namespace fs = std::filesystem;
using base::Code;
using test::expect_error;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    const testing::TestInfo* const info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::path(testing::TempDir()) / (std::string("files_test_") + info->name() + "_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  size_t num_entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(Files, NothingIsVisibleUntilCommit) {
  const fs::path path = folder_ / "state.json";
  base::write_file_atomic(path, "old");
  base::AtomicFile file(path);
  file.write("ne");
  file.write("w");
  EXPECT_EQ(base::read_file(path), "old");
  file.commit();
  EXPECT_EQ(base::read_file(path), "new");
  EXPECT_EQ(num_entries(), 1u);
}

TEST_F(Files, AWriterThatGivesUpLeavesTheOldFileAndNoOther) {
  const fs::path path = folder_ / "state.json";
  base::write_file_atomic(path, "old");
  { base::AtomicFile(path).write("half"); }
  EXPECT_EQ(base::read_file(path), "old");
  EXPECT_EQ(num_entries(), 1u);
}

TEST_F(Files, ALeftoverTemporaryFileOfAKilledWriterIsReplaced) {
  const fs::path path = folder_ / "state.json";
  base::write_file_atomic(folder_ / "state.json.tmp", std::string(1000, 'x'));
  base::write_file_atomic(path, "new");
  EXPECT_EQ(base::read_file(path), "new");
  EXPECT_EQ(num_entries(), 1u);
}

TEST_F(Files, ReadingStopsAtTheLimitAndSaysSo) {
  const fs::path path = folder_ / "big";
  base::write_file_atomic(path, std::string(100, 'x'));
  EXPECT_EQ(base::read_file(path, 100).size(), 100u);
  expect_error(Code::invalid_argument, {path.string(), "100 bytes", "99 allowed"}, [&] { base::read_file(path, 99); });
}

TEST_F(Files, WhatIsNotARegularFileIsRefused) {
  expect_error(Code::invalid_argument, {folder_.string(), "not a regular file"}, [&] { base::read_file(folder_); });
  expect_error(Code::invalid_argument, {"not a regular file"}, [&] { base::MappedFile map(folder_); });
  expect_error(Code::not_found, {"nothing_here", "cannot open"}, [&] { base::read_file(folder_ / "nothing_here"); });
  expect_error(Code::not_found, {"no_folder"}, [&] { base::write_file_atomic(folder_ / "no_folder" / "x", "y"); });
}

TEST_F(Files, AMappedFileKeepsItsBytesWhenTheNameGetsAnotherFile) {
  const fs::path path = folder_ / "tensor";
  base::write_file_atomic(path, "first");
  const base::MappedFile map(path);
  base::write_file_atomic(path, "second");
  ASSERT_EQ(map.bytes().size(), 5u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(map.bytes().data()), 5), "first");
}

TEST_F(Files, AMappedFileMovesAndMayBeEmpty) {
  const fs::path path = folder_ / "tensor", nothing = folder_ / "empty";
  base::write_file_atomic(path, "bytes");
  base::write_file_atomic(nothing, "");
  base::MappedFile map(path), other(nothing);
  EXPECT_TRUE(other.bytes().empty());
  other = std::move(map);
  ASSERT_EQ(other.bytes().size(), 5u);
  EXPECT_EQ(other.path(), path);
  const base::MappedFile third = std::move(other);
  EXPECT_EQ(static_cast<char>(third.bytes()[0]), 'b');
}

TEST_F(Files, AFolderIsRenamedIntoPlace) {
  fs::create_directories(folder_ / "step_1.tmp");
  base::write_file_atomic(folder_ / "step_1.tmp" / "x", "y");
  base::rename_durably(folder_ / "step_1.tmp", folder_ / "step_1");
  EXPECT_EQ(base::read_file(folder_ / "step_1" / "x"), "y");
  EXPECT_FALSE(fs::exists(folder_ / "step_1.tmp"));
  expect_error(Code::not_found, {"cannot rename"}, [&] { base::rename_durably(folder_ / "gone", folder_ / "b"); });
}

TEST_F(Files, FreeSpaceIsThatOfTheNearestExistingFolder) {
  EXPECT_GT(base::free_bytes(folder_), 0);
  EXPECT_GT(base::free_bytes(folder_ / "not" / "yet" / "there"), 0);
}

}  // namespace
