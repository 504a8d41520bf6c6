// The dialect of kernels/gpu in plain C++: a block's lanes are a loop, step by step, so that tests run the very sources
// that the GPU compilers get. Lanes go forwards or backwards: a step in which a lane reads what another one writes
// gives different results. Shared memory starts as NaN, so that what nobody wrote is noticed.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define GPU_FUNCTION inline
#define GPU_KERNEL inline void

namespace kernels::gpu {

inline constexpr bool kOnGpu = false;
inline constexpr const char* kChips = "no chip: lanes are emulated";

// The block that runs on this thread.
struct EmulatedBlock {
  int64_t index = 0, count = 1;
  int lanes = 0;
  bool backwards = false;  // set by tests

  static EmulatedBlock& current() {
    static thread_local EmulatedBlock block;
    return block;
  }
};

inline int64_t block_of_grid() { return EmulatedBlock::current().index; }
inline int64_t blocks_of_grid() { return EmulatedBlock::current().count; }

struct Lanes {
  int count() const { return EmulatedBlock::current().lanes; }

  template <class Body>
  void each(const Body& body) const {
    const bool backwards = EmulatedBlock::current().backwards;
    for (int i = 0; i < count(); ++i) body(backwards ? count() - 1 - i : i);
  }
};

template <class T>
struct Per {
  explicit Per(const Lanes& lanes) : values(static_cast<size_t>(lanes.count())) {}
  T& operator[](int lane) { return values[static_cast<size_t>(lane)]; }
  std::vector<T> values;
};

template <class T, class Join>
void join_teams(const Lanes& lanes, Per<T>& values, const Join& join) {
  for (int mask = 8; mask > 0; mask /= 2) {
    const std::vector<T> before = values.values;
    for (int lane = 0; lane < lanes.count(); ++lane) {
      values[lane] = join(before[static_cast<size_t>(lane)], before[static_cast<size_t>(lane ^ mask)]);
    }
  }
}

template <class T>
T agree(const Lanes&, const T& place) {
  return place;
}

template <class T>
T& shared_memory() {
  static thread_local T memory;
  std::memset(static_cast<void*>(&memory), 0xff, sizeof(T));
  return memory;
}

inline float fused(float a, float b, float c) { return std::fma(a, b, c); }
inline double fused(double a, double b, double c) { return std::fma(a, b, c); }
inline float root(float x) { return std::sqrt(x); }

template <class... Parameters>
const char* enqueue(void (*kernel)(Parameters...), unsigned blocks, unsigned lanes, void*, Parameters... parameters) {
  EmulatedBlock& block = EmulatedBlock::current();
  block.count = blocks;
  block.lanes = static_cast<int>(lanes);
  for (block.index = 0; block.index < block.count; ++block.index) kernel(parameters...);
  return nullptr;
}

}  // namespace kernels::gpu
