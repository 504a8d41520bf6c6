// The lanes of a block on a GPU. A kernel is a row of steps that all lanes take together; between steps a lane keeps
// what is its own in a Per, and what lanes tell each other lies in shared memory, which is read in steps and by agree()
// alone. The tests' dialect runs the same steps as loops (tests/kernels/gpu/emulated/dialect.h).
#pragma once
#include <bit>
#include <cstdint>

namespace kernels::gpu {

struct Lanes {
  GPU_FUNCTION int count() const { return lanes_of_block(); }

  // body(lane), then all wait: no body may read what another lane writes in the same step.
  template <class Body>
  GPU_FUNCTION void each(const Body& body) const {
    body(lane_of_block());
    wait_for_block();
  }
};

// A value of each lane, in its registers.
template <class T>
struct Per {
  GPU_FUNCTION explicit Per(const Lanes&) : value() {}
  GPU_FUNCTION T& operator[](int) { return value; }
  T value;
};

template <class T>
GPU_FUNCTION T partner_value(T value, int mask) {
  if constexpr (sizeof(T) == 8) {
    const auto bits = std::bit_cast<uint64_t>(value);
    const uint64_t high = from_partner(static_cast<uint32_t>(bits >> 32), mask);
    return std::bit_cast<T>(high << 32 | from_partner(static_cast<uint32_t>(bits), mask));
  } else {
    return std::bit_cast<T>(from_partner(std::bit_cast<uint32_t>(value), mask));
  }
}

// In every team of 16 neighbouring lanes: the values of the lanes joined in halves (lane + 8, + 4, + 2, + 1), the
// result in all of them. join commutes.
template <class T, class Join>
GPU_FUNCTION void join_teams(const Lanes&, Per<T>& values, const Join& join) {
  for (int mask = 8; mask > 0; mask /= 2) values.value = join(values.value, partner_value(values.value, mask));
}

// What all lanes read at one place of shared memory. All have read it before any goes on, and may write there again.
template <class T>
GPU_FUNCTION T agree(const Lanes&, const T& place) {
  const T value = place;
  wait_for_block();
  return value;
}

// One T per block, with unspecified values.
template <class T>
GPU_FUNCTION T& shared_memory() {
  GPU_SHARED T memory;
  return memory;
}

}  // namespace kernels::gpu
