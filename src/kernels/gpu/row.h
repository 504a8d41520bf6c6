// Steps that kernels of rows have in common: the sum of squares in the order of kernels/cpu/row_inl.h, and the rounding
// of groups to the grids of kernels/cpu/simulate.h.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/simulate.h"
#include "kernels/gpu/arithmetic.h"

namespace kernels::gpu {

struct RowMemory {
  static constexpr int kChunk = 4096;  // a multiple of the 16 chains
  float chunk[kChunk];
  float sum;
};

// 16 chains, chain c over the elements i with i % 16 == c in ascending order, then halves. The row comes through shared
// memory, since only 16 lanes add.
GPU_FUNCTION float sum_of_squares(const Lanes& lanes, const float* x, int64_t n, RowMemory& memory) {
  Per<float> chain(lanes);
  for (int64_t begin = 0; begin < n; begin += RowMemory::kChunk) {
    const int count = static_cast<int>(std::min<int64_t>(RowMemory::kChunk, n - begin));
    lanes.each([&](int lane) {
      for (int i = lane; i < count; i += lanes.count()) memory.chunk[i] = x[begin + i];
    });
    lanes.each([&](int lane) {
      if (lane >= kTeam) return;
      float sum = chain[lane];
      for (int i = lane; i < count; i += kTeam) sum = fused(memory.chunk[i], memory.chunk[i], sum);
      chain[lane] = sum;
    });
  }
  join_teams(lanes, chain, [](float a, float b) { return a + b; });
  lanes.each([&](int lane) {
    if (lane == 0) memory.sum = chain[lane];
  });
  return agree(lanes, memory.sum);
}

struct Group {
  int64_t index, begin, end;
};

// A row of `columns` values in groups of `group` (the last may be shorter), one to a team at a time. write(g, i, amax)
// for every value i of group g, by the lane that has it; amax: the bits of the group's largest magnitude.
template <class Write>
GPU_FUNCTION void each_group(const Lanes& lanes, const float* from, int64_t columns, int64_t group,
                             const Write& write) {
  const int64_t teams = lanes.count() / kTeam, num_groups = (columns + group - 1) / group;
  const auto group_of = [&](int64_t first, int lane) {
    const int64_t g = first + lane / kTeam;
    return Group{g, g * group, std::min((g + 1) * group, columns)};  // begin >= end: there is none
  };
  Per<int32_t> amax(lanes);
  for (int64_t first = 0; first < num_groups; first += teams) {
    lanes.each([&](int lane) {
      const Group own = group_of(first, lane);
      int32_t largest = 0;  // for non-negative floats the order of the bits is the order of the values, NaN above all
      for (int64_t i = own.begin + lane % kTeam; i < own.end; i += kTeam) {
        largest = std::max(largest, bits_of(magnitude(from[i])));
      }
      amax[lane] = largest;
    });
    join_teams(lanes, amax, [](int32_t a, int32_t b) { return a > b ? a : b; });
    lanes.each([&](int lane) {
      const Group own = group_of(first, lane);
      for (int64_t i = own.begin + lane % kTeam; i < own.end; i += kTeam) write(own, i, amax[lane]);
    });
  }
}

constexpr int32_t kNotFinite = 0x7f800000;  // bits of a magnitude from here on: an infinity or NaN

// Each value replaced by what it is after quantising in groups and back. `to` may be `from`.
GPU_FUNCTION void simulate_row(const Lanes& lanes, const float* from, float* to, const cpu::GroupedRows& rows,
                               BlockFormat format) {
  each_group(lanes, from, rows.columns, rows.group, [&](const Group&, int64_t i, int32_t amax) {
    const int32_t bits = with_floor(amax, format), byte = cpu::scale_byte(bits, cpu::scale_rule(format));
    to[i] =
        bits >= kNotFinite ? not_a_number() : to_grid(from[i] * power_of_two(254 - byte), format) * power_of_two(byte);
  });
}

}  // namespace kernels::gpu
