// Memory for the results of CPU kernels. Generation runs the same operations on similar shapes step after step: inside
// a RecycleScope a result takes the place of one of an earlier step that nobody holds any more, and nothing is
// allocated. Outside a scope, empty() is at::empty.
//
// Threads: a Recycler belongs to the thread that has a scope on it. Only without gradients.
#pragma once
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace tensor {

class Recycler {
 public:
  // A contiguous CPU tensor with unspecified values that nobody else holds. Its memory is that of its size class
  // (size_class), so a batch that is a little smaller than the last one finds the last one's memory.
  Tensor take(at::IntArrayRef sizes, at::ScalarType dtype);

  // Frees the size classes of which nothing was taken in the last kKeptSteps calls. For the end of a step.
  void sweep();

  int64_t size_bytes() const;                                   // held at the moment, in use or not
  int64_t num_allocations() const { return num_allocations_; }  // since the start

  // Longer than the longest time between two results of one kind: a compressed entry comes every 128 steps of decode.
  static constexpr int64_t kKeptSteps = 256;

  // The number of elements that a tensor of `count` is given room for: the next of 1, 1.25, 1.5, 1.75 times a power
  // of two, at least 16.
  static int64_t size_class(int64_t count);

 private:
  struct Shelf {
    int64_t room = 0;  // elements
    at::ScalarType dtype = at::kFloat;
    std::vector<Tensor> tensors;
    size_t next = 0;
    int64_t last_used = 0;  // step
  };

  Shelf& shelf_of(int64_t room, at::ScalarType dtype);

  std::vector<Shelf> shelves_;
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
