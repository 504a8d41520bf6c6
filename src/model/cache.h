// Per-sequence state of generation: window rings, compressed entries, indexer keys and the raw rows of open compressor
// blocks. A fixed number of slots, each for one sequence of up to `capacity` tokens (spec 4.10). Owned by one thread.
//
// Letters: S slots, X sliding_window, K head_dim.
#pragma once
#include <vector>

#include "kernels/compressor.h"
#include "model/config.h"
#include "tensor/tensor.h"

namespace model {

using kernels::CompressorState;

struct LayerCache {
  tensor::Tensor window_SXK;    // row = position mod sliding_window
  CompressorState main, index;  // empty where the layer has none
};

class Cache {
 public:
  // Memory: bytes_per_slot(config, capacity) * num_slots, allocated at once.
  Cache(const Config& config, int64_t num_slots, int64_t capacity, tensor::Device device);

  // Copies the whole state of one slot over others: n samples of one prompt share its prefill.
  void fork(int64_t from, const std::vector<int64_t>& to);

  int64_t num_slots() const { return num_slots_; }
  int64_t capacity() const { return capacity_; }
  LayerCache& layer(int64_t index) { return layers_[static_cast<size_t>(index)]; }

  static int64_t bytes_per_slot(const Config& config, int64_t capacity);

 private:
  int64_t num_slots_, capacity_;
  std::vector<LayerCache> layers_;
};

}  // namespace model
