#include "controller/memory.h"

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "base/files.h"
#include "controller/scratch.h"

namespace controller {
namespace {
namespace fs = std::filesystem;
using test::expect_error;

constexpr int64_t kMiB = 1 << 20;

// A kernel with the files that a test gives it.
class FakeKernel {
 public:
  FakeKernel() {
    write("meminfo", "MemTotal:       16000000 kB\nMemAvailable:    8192 kB\n");
    write("own", "");
  }
  void write(const fs::path& name, const std::string& text) {
    fs::create_directories((scratch_.path() / name).parent_path());
    base::write_file_atomic(scratch_.path() / name, text);
  }
  int64_t available() const {
    return available_memory_bytes({scratch_.path() / "meminfo", scratch_.path() / "own", scratch_.path() / "groups"});
  }

 private:
  Scratch scratch_;
};

TEST(Memory, WithoutControlGroupsItIsMemAvailable) { EXPECT_EQ(FakeKernel().available(), 8 * kMiB); }

TEST(Memory, PeakIsComparedWithThePlan) {
  Scratch scratch;
  base::write_file_atomic(scratch.path() / "status", "Name:\tx\nVmHWM:\t    3072 kB\nVmRSS:\t    1024 kB\n");
  const HeldMemory held = held_memory({.own_status = scratch.path() / "status"});
  EXPECT_EQ(held.peak, 3 * kMiB);
  EXPECT_EQ(held.now, 1 * kMiB);
  EXPECT_EQ(describe_peak({{"a", 1 * kMiB, ""}, {"b", 3 * kMiB, ""}}, held.peak),
            "memory: 3 MiB at the peak, 0.75 of the 4 MiB planned");
  EXPECT_GE(held_memory().peak, held_memory().now);
  EXPECT_GT(held_memory().now, kMiB) << "of this process";
}

TEST(Memory, ControlGroupLeavesItsLimitMinusUseWithoutFileCache) {
  FakeKernel kernel;
  kernel.write("own", "0::/job\n");
  kernel.write("groups/job/memory.max", "6291456\n");
  kernel.write("groups/job/memory.current", "5242880\n");
  kernel.write("groups/job/memory.stat", "anon 1\ninactive_file 1048576\nactive_file 7\n");
  EXPECT_EQ(kernel.available(), 6 * kMiB - 5 * kMiB + 1 * kMiB);
}

TEST(Memory, TheTightestGroupAroundTheProcessDecides) {
  FakeKernel kernel;
  kernel.write("own", "0::/outer/inner\n");
  kernel.write("groups/outer/memory.max", "2097152\n");
  kernel.write("groups/outer/memory.current", "1048576\n");
  kernel.write("groups/outer/inner/memory.max", "max\n");
  kernel.write("groups/outer/inner/memory.current", "1000\n");
  EXPECT_EQ(kernel.available(), 1 * kMiB);
}

TEST(Memory, InAContainerTheLimitStandsAtTheRootOfTheMount) {
  FakeKernel kernel;
  kernel.write("own", "0::/docker/0123\n");
  kernel.write("groups/memory.max", "3145728\n");
  kernel.write("groups/memory.current", "1048576\n");
  EXPECT_EQ(kernel.available(), 2 * kMiB);
}

TEST(Memory, VersionOneOfControlGroupsCounts) {
  FakeKernel kernel;
  kernel.write("own", "9:memory:/job\n3:cpu:/\n");
  kernel.write("groups/memory/memory.limit_in_bytes", "9223372036854771712\n");  // no limit
  kernel.write("groups/memory/memory.usage_in_bytes", "1000000\n");
  kernel.write("groups/memory/job/memory.limit_in_bytes", "4194304\n");
  kernel.write("groups/memory/job/memory.usage_in_bytes", "3145728\n");
  EXPECT_EQ(kernel.available(), 1 * kMiB);
}

TEST(Memory, GroupOverItsLimitLeavesNothing) {
  FakeKernel kernel;
  kernel.write("own", "0::/\n");
  kernel.write("groups/memory.max", "1048576\n");
  kernel.write("groups/memory.current", "2097152\n");
  EXPECT_EQ(kernel.available(), 0);
}

TEST(Memory, KernelThatDoesNotSayIsAnError) {
  FakeKernel kernel;
  kernel.write("meminfo", "MemTotal: 1 kB\n");
  expect_error(base::Code::unavailable, {"MemAvailable"}, [&] { kernel.available(); });
}

TEST(Memory, RunThatDoesNotFitNamesTheLargestPartFirstWithItsSetting) {
  const std::vector<MemoryPart> parts = {{"weights", 1 << 30, ""}, {"caches", int64_t{3} << 30, "num_slots"}};
  check_memory(parts, int64_t{4} << 30);
  expect_error(
      base::Code::invalid_argument,
      {"needs about 4.00 GiB", "3.99 GiB are available", "caches: 3.00 GiB; lower num_slots\n  weights: 1.00 GiB"},
      [&] { check_memory(parts, (int64_t{4} << 30) - 10 * kMiB); });
}

TEST(Memory, PlanIsDescribedPartByPart) {
  EXPECT_EQ(describe_memory({{"weights", 1 << 30, ""}, {"caches", 1 << 29, "x"}}, int64_t{8} << 30),
            "memory: 1.50 GiB planned (weights 1.00 GiB, caches 512 MiB), 8.00 GiB available");
}

}  // namespace
}  // namespace controller
