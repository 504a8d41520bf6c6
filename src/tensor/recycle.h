// Memory for the results of CPU kernels. Generation runs the same operations on the same shapes step after step: inside
// a RecycleScope a result takes the place of one of an earlier step that nobody holds any more, and nothing is
// allocated. Outside a scope, empty() is at::empty.
//
// Threads: a Recycler belongs to the thread that has a scope on it. Only without gradients.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace tensor {

class Recycler {
 public:
  // A contiguous CPU tensor with unspecified values that nobody else holds. At most 4 dims.
  Tensor take(at::IntArrayRef sizes, at::ScalarType dtype);

  // Frees what was not taken since the last call but one. For the end of a step.
  void sweep();

  int64_t size_bytes() const;           // held at the moment, in use or not
  int64_t num_allocations() const { return num_allocations_; }  // since the start

 private:
  struct Shape {
    std::array<int64_t, 4> sizes{};
    size_t dims = 0;
    at::ScalarType dtype = at::kFloat;
    bool operator==(const Shape&) const = default;
  };
  struct Shelf {
    Shape shape;
    std::vector<Tensor> tensors;
    size_t next = 0;
    int64_t last_used = 0;  // step
  };

  std::vector<Shelf> shelves_;
  size_t last_shelf_ = 0;
  int64_t step_ = 0, num_allocations_ = 0;
};

class RecycleScope {
 public:
  explicit RecycleScope(Recycler& recycler);
  ~RecycleScope();
  RecycleScope(const RecycleScope&) = delete;
  RecycleScope& operator=(const RecycleScope&) = delete;

 private:
  Recycler* before_;
};

// A contiguous CPU tensor with unspecified values.
Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat);

}  // namespace tensor
