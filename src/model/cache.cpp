// Allocation and forking of slots.
#include "model/cache.h"

#include "base/error.h"

namespace model {
namespace {
using tensor::Tensor;

struct StateSize {
  int64_t rows = 0, channels = 0, entries = 0, dim = 0;
  int64_t floats() const { return 2 * rows * channels + entries * dim; }
};

StateSize state_size(int64_t ratio, bool overlap, int64_t dim, int64_t capacity) {
  const int64_t twice = overlap ? 2 : 1;
  return {twice * ratio, twice * dim, capacity / ratio, dim};
}

StateSize main_size(const Config& config, int64_t layer, int64_t capacity) {
  const LayerKind kind = config.layer_types[static_cast<size_t>(layer)];
  if (kind == LayerKind::window) return {};
  return state_size(config.compress_ratio(layer), kind == LayerKind::csa, config.head_dim, capacity);
}

StateSize index_size(const Config& config, int64_t layer, int64_t capacity) {
  if (config.layer_types[static_cast<size_t>(layer)] != LayerKind::csa) return {};
  return state_size(config.csa_ratio, true, config.index_head_dim, capacity);
}

CompressorState make_state(const StateSize& size, int64_t slots, const at::TensorOptions& options) {
  if (size.rows == 0) return {};
  return {at::zeros({slots, size.rows, size.channels}, options), at::zeros({slots, size.rows, size.channels}, options),
          at::zeros({slots, size.entries, size.dim}, options)};
}

}  // namespace

Cache::Cache(const Config& config, int64_t num_slots, int64_t capacity, tensor::Device device)
    : num_slots_(num_slots), capacity_(capacity) {
  if (num_slots < 1 || capacity < 1) {
    base::fail(base::Code::invalid_argument, "a cache of {} slots for {} tokens each: both must be at least 1",
               num_slots, capacity);
  }
  const auto options = at::device(device).dtype(at::kFloat);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers_.push_back({at::zeros({num_slots, config.sliding_window, config.head_dim}, options),
                       make_state(main_size(config, i, capacity), num_slots, options),
                       make_state(index_size(config, i, capacity), num_slots, options)});
  }
}

void Cache::fork(int64_t from, const std::vector<int64_t>& to) {
  if (to.empty()) return;
  for (LayerCache& layer : layers_) {
    for (Tensor* part : {&layer.window_SXK, &layer.main.kv_SPC, &layer.main.score_SPC, &layer.main.entries_SNK,
                         &layer.index.kv_SPC, &layer.index.score_SPC, &layer.index.entries_SNK}) {
      if (!part->defined()) continue;
      const Tensor source = part->select(0, from);
      for (const int64_t slot : to) part->select(0, slot).copy_(source);
    }
  }
}

int64_t Cache::bytes_per_slot(const Config& config, int64_t capacity) {
  int64_t floats = 0;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    floats += config.sliding_window * config.head_dim + main_size(config, i, capacity).floats() +
              index_size(config, i, capacity).floats();
  }
  return floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace model
