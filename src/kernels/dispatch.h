// Kernel or reference: f32 tensors in host memory have CPU kernels, everything else runs the reference.
#pragma once
#include "tensor/tensor.h"

namespace kernels {

// While it lives, ops on this thread run their references on the CPU too: what a device without kernels computes, for
// comparing the two.
class ReferenceScope {
 public:
  ReferenceScope() : before_(std::exchange(active(), true)) {}
  ~ReferenceScope() { active() = before_; }
  ReferenceScope(const ReferenceScope&) = delete;
  ReferenceScope& operator=(const ReferenceScope&) = delete;

  static bool& active() {
    thread_local bool on = false;
    return on;
  }

 private:
  bool before_;
};

inline bool has_cpu_kernel(const tensor::Tensor& values) {
  return values.is_cpu() && values.scalar_type() == at::kFloat && !ReferenceScope::active();
}

}  // namespace kernels
