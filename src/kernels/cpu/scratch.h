// Working memory of a kernel that keeps its capacity from call to call: for thread_local objects, so that a kernel
// allocates nothing once it has seen its largest input. It grows to powers of two: an input that becomes a little
// larger with each call, as the keys of a growing answer, allocates a few times only.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

namespace kernels::cpu {

// Floats at an address that suits any vector. Not copyable.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { release(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // At least `count` floats with unspecified values; valid until the next call.
  float* floats(int64_t count) {
    if (count <= capacity_) return data_;
    release();
    const size_t capacity = std::bit_ceil(static_cast<size_t>(count));
    data_ = static_cast<float*>(::operator new(capacity * sizeof(float), kAlignment));
    capacity_ = static_cast<int64_t>(capacity);
    return data_;
  }

 private:
  static constexpr std::align_val_t kAlignment{64};

  void release() {
    if (data_ != nullptr) ::operator delete(data_, kAlignment);
    data_ = nullptr;
    capacity_ = 0;
  }

  float* data_ = nullptr;
  int64_t capacity_ = 0;
};

}  // namespace kernels::cpu
