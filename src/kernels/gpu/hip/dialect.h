// What the kernels need of HIP, by clang's builtins alone: no header and no device library of ROCm takes part, at run
// time libamdhip64 does. kernels/gpu/cuda/dialect.h says the same in CUDA.
#pragma once
#include <cstddef>
#include <cstdint>

#define GPU_FUNCTION __attribute__((device, always_inline)) inline
#define GPU_KERNEL static __attribute__((global, amdgpu_flat_work_group_size(1, 256))) void
#define GPU_SHARED __attribute__((shared))

// The part of the HIP runtime that is called, as hip_runtime_api.h declares it.
struct dim3 {
  uint32_t x, y, z;
};
struct ihipStream_t;
using hipStream_t = ihipStream_t*;
using hipError_t = int;
extern "C" {
hipError_t hipLaunchKernel(const void* function, dim3 blocks, dim3 lanes, void** arguments, size_t shared_bytes,
                           hipStream_t stream);
const char* hipGetErrorString(hipError_t error);
}

namespace kernels::gpu {

inline constexpr bool kOnGpu = true;  // where the memory lies that kernels take
inline constexpr const char* kChips = "gfx942 and gfx950";

GPU_FUNCTION int lane_of_block() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
GPU_FUNCTION int lanes_of_block() { return static_cast<int>(__builtin_amdgcn_workgroup_size_x()); }
GPU_FUNCTION int64_t block_of_grid() { return __builtin_amdgcn_workgroup_id_x(); }
GPU_FUNCTION int64_t blocks_of_grid() {
  return __builtin_amdgcn_grid_size_x() / static_cast<uint32_t>(lanes_of_block());
}

// All lanes of a block wait for each other; what they wrote before is seen by all after.
GPU_FUNCTION void wait_for_block() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// The value of the lane whose number differs in the bits of `mask` (below 16). All lanes of a block call it together.
GPU_FUNCTION uint32_t from_partner(uint32_t value, int mask) {
  const uint32_t lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));  // of the wave
  const uint32_t partner = lane ^ static_cast<uint32_t>(mask);
  return static_cast<uint32_t>(__builtin_amdgcn_ds_bpermute(static_cast<int>(partner * 4), static_cast<int>(value)));
}

// a * b + c, rounded once; the root, rounded once.
GPU_FUNCTION float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
GPU_FUNCTION double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
GPU_FUNCTION float root(float x) { return __builtin_sqrtf(x); }

// Puts a kernel into a queue. nullptr, or why not.
template <class... Parameters>
const char* enqueue(void (*kernel)(Parameters...), unsigned blocks, unsigned lanes, void* queue,
                    Parameters... parameters) {
  void* arguments[] = {static_cast<void*>(&parameters)...};
  const hipError_t error = hipLaunchKernel(reinterpret_cast<const void*>(kernel), {blocks, 1, 1}, {lanes, 1, 1},
                                           arguments, 0, static_cast<hipStream_t>(queue));
  return error == 0 ? nullptr : hipGetErrorString(error);
}

}  // namespace kernels::gpu

#include "kernels/gpu/device_lanes.h"
