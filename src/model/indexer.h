// The lightning indexer of CSA layers: which compressed entries a query attends to (spec 4.6). Frozen: no gradient
// passes.
//
// Letters: T tokens, D hidden_size, R q_lora_rank, Q query blocks, L queries per block, N entries, A index_topk.
#pragma once
#include "model/cache.h"
#include "model/layout.h"
#include "model/profile.h"
#include "model/weights.h"

namespace model {

struct IndexerInput {
  Tensor input_TD;     // the attention's input
  Tensor query_in_TR;  // normed low-rank query, through linear_input
};

// Updates the indexer's keys, then chooses: bool [Q, L, N], at most index_topk entries per query, all of them visible.
// Higher score first, then lower index. Undefined when no query sees an entry. chosen_TA: nullptr, or where the choice
// is recorded; replay: take the choice from there instead.
Tensor choose_entries(const Config& config, const Profile& profile, const IndexerWeights& weights,
                      const IndexerInput& input, const Layout& layout, CompressorState* state, Tensor* chosen_TA,
                      bool replay);

}  // namespace model
