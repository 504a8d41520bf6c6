// Host copies, byte views and checksums of tensors.
#include "tensor/bytes.h"

#include <bit>

#include "base/hash.h"

namespace tensor {

static_assert(std::endian::native == std::endian::little, "files and wires are little-endian");

Tensor to_host(const Tensor& value) { return value.detach().to(at::kCPU).contiguous(); }

std::span<const std::byte> bytes_of(const Tensor& host) {
  CHECK(host.is_cpu() && host.is_contiguous());
  return {static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()};
}

uint64_t checksum64(const Tensor& value) {
  const Tensor host = to_host(value);
  return base::hash64(bytes_of(host));
}

}  // namespace tensor
