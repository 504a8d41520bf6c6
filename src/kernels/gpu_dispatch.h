// The way from an op to a kernel of kernels/gpu: whether there is one, the queue it goes into, and its gradient, which
// is that of the op's reference.
#pragma once
#include <functional>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/gpu/launch.h"

namespace kernels {

// f32 tensors on a GPU, in a build with GPU kernels.
inline bool has_gpu_kernel(const tensor::Tensor& values) {
  return gpu::take(values.is_cuda()) && values.scalar_type() == at::kFloat && !ReferenceScope::active();
}

// While it lives, the device of `values` is the current one, and queue() is libtorch's own for it: kernels run in order
// with tensor operations, and the memory of tensors that are freed meanwhile is reused only behind them.
class OnDevice {
 public:
  explicit OnDevice(const tensor::Tensor& values) : guard_(values.device()) {
    if (!values.is_cuda()) return;  // emulated lanes
    const c10::impl::VirtualGuardImpl devices(values.device().type());
    queue_.handle = devices.getStreamNativeHandle(devices.getStream(values.device()));
  }
  gpu::Queue queue() const { return queue_; }

 private:
  at::DeviceGuard guard_;
  gpu::Queue queue_;
};

using Operation = std::function<std::vector<tensor::Tensor>(const std::vector<tensor::Tensor>&)>;

// kernel(inputs), called at once; where a gradient is wanted, backward computes reference(inputs) again and
// differentiates it, so that `reference` keeps what it needs by value. Both give the same results in the same order,
// all defined; inputs are defined, and kernel gets them contiguous.
std::vector<tensor::Tensor> with_reference_gradient(const std::vector<tensor::Tensor>& inputs, const Operation& kernel,
                                                    const Operation& reference);

}  // namespace kernels
