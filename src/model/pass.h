// What one forward pass is given, and what one block of it is given.
//
// Letters: T tokens.
#pragma once
#include <vector>

#include "model/cache.h"
#include "model/layout.h"
#include "model/probe.h"
#include "model/profile.h"
#include "model/run_weights.h"

namespace model {

// Discrete choices of one pass, per layer: recorded, or replayed instead of choosing (routing replay; layer-by-layer
// tests).
struct Choices {
  enum class Mode { record, replay };
  Mode experts = Mode::record, entries = Mode::record;
  std::vector<Tensor> experts_TA;  // int32 [T, experts per token], ascending ids; MTP's after the last layer's
  std::vector<Tensor> entries_TA;  // int32 [T, index_topk], ascending entry index, -1 = none; csa layers
};

struct Pass {
  const RunWeights& weights;
  Profile profile;
  const Layout& layout;
  const RopeTables& rope;  // rows for every position of the layout
  Tensor ids_T;            // int64 [T], on the device of the weights
  Cache* cache = nullptr;  // written in place; only without gradients
  Choices* choices = nullptr;
  // Training: keep only the streams between layers, run each layer again in backward. weights, layout and rope must
  // live until then.
  bool recompute = false;
  const Probe* probe = nullptr;
};

// One block (a layer, or the MTP block) of a pass.
struct BlockCall {
  const Pass& pass;
  int64_t layer = 0;
  LayerKind kind = LayerKind::window;
  LayerCache* cache = nullptr;

  const Config& config() const { return pass.weights.config; }
  void see(Site site, const Tensor& value) const {
    if (pass.probe != nullptr && value.defined()) (*pass.probe)(layer, site, value);
  }
};

// The choice of this block: chosen by `choose` and recorded where somebody records, or the one to be replayed.
template <class Choose>
Tensor chosen(const BlockCall& call, Choices::Mode Choices::*mode, std::vector<Tensor> Choices::*per_layer,
              const Choose& choose) {
  Choices* choices = call.pass.choices;
  if (choices == nullptr) return choose();
  const auto layer = static_cast<size_t>(call.layer);
  std::vector<Tensor>& list = choices->*per_layer;
  if (choices->*mode == Choices::Mode::replay) {
    CHECK(layer < list.size() && list[layer].defined(), "no choice to replay at layer {}", layer);
    return list[layer];
  }
  if (list.size() <= layer) list.resize(layer + 1);
  return list[layer] = choose();
}

}  // namespace model
