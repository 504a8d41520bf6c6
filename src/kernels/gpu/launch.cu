// That this build has GPU kernels.
#include "kernels/gpu/launch.h"

#include "kernels/gpu/device.h"

namespace kernels::gpu {

bool take(bool on_gpu) { return on_gpu == kOnGpu; }

}  // namespace kernels::gpu
