// Whether this build has GPU kernels, and the queue that they are put into. For the ops, which see no more of a GPU
// than this and the launch functions of the other headers here. A build without a GPU compiler has the same functions
// from kernels/no_gpu.
#pragma once
#include <cstdint>

namespace kernels::gpu {

// Whether kernels take tensors that lie on a GPU (or not): never without a GPU compiler.
bool take(bool on_gpu);

// A stream of CUDA or HIP, of the device that is current. Launch functions return at once; the kernel runs after what
// the queue holds already. Pointers given to them are device memory and must live until the kernel has run.
struct Queue {
  void* handle = nullptr;  // cudaStream_t or hipStream_t; null: the default stream
};

struct Extent {
  int64_t rows = 0;  // a block each, or as many blocks as there may be
  int lanes = 0;     // of a block
};

}  // namespace kernels::gpu
