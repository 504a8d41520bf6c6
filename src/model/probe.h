// A look into a forward pass: values at named places, for comparing two passes (furlong compare) and for tests. Costs
// nothing when nobody looks.
#pragma once
#include <functional>

#include "tensor/tensor.h"

namespace model {

// In the order in which a layer computes them. Values: T rows, one per token, unless said otherwise.
enum class Site {
  embedding,         // streams [T, M, D] before the first layer (layer 0)
  attn_hc_pre,       // input of the attention before its norm [T, D]
  query,             // [T, H, K] after RoPE
  window_kv,         // [T, K] after RoPE and simulation
  compressor,        // new entries [B, K], a row per entry
  index_compressor,  // new indexer keys [B, I]
  indexer_choice,    // int32 [T, A], ascending, -1 = none
  attention,         // output of attention's softmax [T, H, K], before the output projection
  attn_output,       // [T, D]
  attn_hc_post,      // streams [T, M, D]
  ffn_hc_pre,        // [T, D]
  router_choice,     // int32 [T, A], ascending
  router_weight,     // [T, A]
  shared_output,     // of the shared expert [T, D]
  expert_output,     // routed and shared, summed [T, D]
  ffn_hc_post,       // streams [T, M, D] after the layer
  final_hidden,      // [N, D] before the head (layer: num_hidden_layers)
};

// Called on the thread of the pass; value is only valid during the call.
using Probe = std::function<void(int64_t layer, Site site, const tensor::Tensor& value)>;

}  // namespace model
