// The compressor: pools every `ratio` tokens into one KV entry, by a softmax over the block's rows that each channel
// takes alone (spec 4.5). With overlap (ratio-4 layers) a block also pools the block before it, through other channels.
//
// Letters: T tokens, D hidden_size, K entry dim, B new entries.
#pragma once
#include "model/cache.h"
#include "model/layout.h"
#include "model/profile.h"
#include "model/weights.h"

namespace model {

// The entries that this pass completes, after norm and RoPE, rounded: [B, K]. Undefined when there are none.
// state: rows of open blocks, read and then updated; nullptr without a cache.
Tensor compress(const Config& config, const Profile& profile, const CompressorWeights& weights, const Tensor& input_TD,
                const Layout& layout, const CompressLayout& blocks, CompressorState* state);

// The pool of entries that CompressLayout::entries_QN points into: without a cache the new entries themselves; with
// one, the cache after they are stored. Undefined when no query sees an entry.
Tensor entry_pool(const Tensor& new_entries_BK, const CompressLayout& blocks, CompressorState* state);

}  // namespace model
