// The emulation itself, how rows are shared out, and what launch functions refuse.
#include "kernels/gpu/launch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/expect_error.h"
#include "kernels/gpu/both_orders.h"

namespace {

using namespace kernels::gpu;

struct Neighbours {
  int32_t value[64];
};

GPU_KERNEL racing_kernel(int32_t* out) {
  const Lanes lanes;
  Neighbours& memory = shared_memory<Neighbours>();
  lanes.each([&](int lane) { memory.value[lane] = 1; });
  lanes.each([&](int lane) { memory.value[lane] += memory.value[lane ^ 1]; });  // which the neighbour writes
  lanes.each([&](int lane) { out[lane] = memory.value[lane]; });
}

GPU_KERNEL joining_kernel(const uint64_t* in, uint64_t* out) {
  const Lanes lanes;
  Per<uint64_t> value(lanes);
  lanes.each([&](int lane) { value[lane] = in[lane]; });
  join_teams(lanes, value, [](uint64_t a, uint64_t b) { return a + b; });
  lanes.each([&](int lane) { out[lane] = value[lane]; });
}

GPU_KERNEL counting_kernel(int64_t rows, uint8_t* visits) {
  const Lanes lanes;
  each_row(rows, [&](int64_t row) {
    lanes.each([&](int lane) {
      if (lane == 0) ++visits[row];
    });
  });
}

TEST(EmulatedLanes, ShowAStepInWhichALaneReadsWhatAnotherWrites) {
  std::vector<std::vector<int32_t>> results;
  test::in_both_orders([&] {
    results.emplace_back(64);
    launch("racing", racing_kernel, {1, 64}, {}, results.back().data());
  });
  EXPECT_NE(results[0], results[1]);
}

TEST(EmulatedLanes, JoinWithinTeamsOf16) {
  std::vector<uint64_t> in(64), out(64);
  for (size_t i = 0; i < 64; ++i) in[i] = uint64_t{1} << i;
  launch("joining", joining_kernel, {1, 64}, {}, static_cast<const uint64_t*>(in.data()), out.data());
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], uint64_t{0xffff} << i / 16 * 16);
}

TEST(GpuLaunch, SharesEveryRowOutOnceHoweverManyThereAre) {
  for (const int64_t rows : {0, 1, 7, (1 << 20) + 3}) {  // the last: more rows than blocks
    std::vector<uint8_t> visits(static_cast<size_t>(rows));
    launch("counting", counting_kernel, {rows, 64}, {}, rows, visits.data());
    EXPECT_EQ(std::count(visits.begin(), visits.end(), 1), rows);
  }
}

TEST(GpuLaunch, RefusesBlocksThatAreNotWholeWaves) {
  std::vector<int32_t> out(64);
  for (const int lanes : {0, 16, 96, 512}) {
    test::expect_error(base::Code::internal, {"racing", std::to_string(lanes)}, [&] {
      launch("racing", racing_kernel, {1, lanes}, {}, out.data());
    });
  }
}

TEST(GpuLaunch, ARefusalOfTheGpuNamesTheKernelTheReasonAndTheChips) {
  test::expect_error(base::Code::unavailable, {"rms_norm", "no kernel image is available", "sm_90"},
                     [] { refuse_kernel("rms_norm", "no kernel image is available for the device", "sm_90"); });
}

TEST(GpuLaunch, TakesTensorsOfTheMemoryThatTheDialectHas) {
  EXPECT_TRUE(take(kOnGpu));
  EXPECT_FALSE(take(!kOnGpu));
}

}  // namespace
