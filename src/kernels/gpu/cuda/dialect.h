// What the kernels need of CUDA. kernels/gpu/hip/dialect.h says the same in HIP; which of the two is <dialect.h>
// decides the include path (cmake/gpu_compile.cmake), and nothing else in kernels/gpu differs between them.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#define GPU_FUNCTION __device__ __forceinline__
// Blocks of at most 256 lanes (kMostLanes): the compiler may give each the registers that this leaves.
#define GPU_KERNEL static __global__ void __launch_bounds__(256)
#define GPU_SHARED __shared__

namespace kernels::gpu {

inline constexpr bool kOnGpu = true;  // where the memory lies that kernels take
inline constexpr const char* kChips = "sm_90";

GPU_FUNCTION int lane_of_block() { return static_cast<int>(threadIdx.x); }
GPU_FUNCTION int lanes_of_block() { return static_cast<int>(blockDim.x); }
GPU_FUNCTION int64_t block_of_grid() { return blockIdx.x; }
GPU_FUNCTION int64_t blocks_of_grid() { return gridDim.x; }

// All lanes of a block wait for each other; what they wrote before is seen by all after.
GPU_FUNCTION void wait_for_block() { __syncthreads(); }

// The value of the lane whose number differs in the bits of `mask` (below 16). All lanes of a block call it together.
GPU_FUNCTION uint32_t from_partner(uint32_t value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// a * b + c, rounded once; the root, rounded once.
GPU_FUNCTION float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
GPU_FUNCTION double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
GPU_FUNCTION float root(float x) { return __fsqrt_rn(x); }

// Puts a kernel into a queue. nullptr, or why not.
template <class... Parameters>
const char* enqueue(void (*kernel)(Parameters...), unsigned blocks, unsigned lanes, void* queue,
                    Parameters... parameters) {
  void* arguments[] = {static_cast<void*>(&parameters)...};
  const cudaError_t error = cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), dim3(lanes),
                                             arguments, 0, static_cast<cudaStream_t>(queue));
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace kernels::gpu

#include "kernels/gpu/device_lanes.h"
