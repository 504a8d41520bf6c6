// The bytes of a tensor as files and wires hold them: row-major, little-endian.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace tensor {

// A contiguous copy on the CPU, or the tensor itself where it is one already. A transposed view comes out in its
// logical order.
Tensor to_host(const Tensor& value);

// The memory of a contiguous CPU tensor, valid while it lives.
std::span<const std::byte> bytes_of(const Tensor& host);

// base::hash64 of the bytes of to_host(value).
uint64_t checksum64(const Tensor& value);

}  // namespace tensor
