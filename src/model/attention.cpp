// Queries, keys of both kinds, the joint softmax and the output projection.
#include "model/attention.h"

#include "kernels/attention.h"
#include "kernels/indexer.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "model/numerics.h"

namespace model {
namespace {

using kernels::AttentionKeys;
using kernels::EntryGrid;
using kernels::EntryLayout;

struct AttentionInput {
  Tensor values_TD;    // not through linear_input
  Tensor query_in_TR;  // normed low-rank query, through linear_input
};

Tensor new_entries(const BlockCall& call, const CompressorWeightsOf<Matrix>& weights, const Tensor& input_TD,
                   const EntryLayout& entries, EntryGrid grid, kernels::CompressorState* state) {
  const Tensor kv_TC = kernels::linear(input_TD, weights.wkv, kernels::Rounding::none);
  const Tensor score_TC = kernels::linear(input_TD, weights.wgate, kernels::Rounding::none);
  return kernels::pool_entries(kv_TC, score_TC, weights.ape, weights.norm,
                               {call.config().rms_norm_eps, rounding(call.pass.profile), grid}, call.pass.layout,
                               entries, call.pass.rope.compress, state);
}

// With a cache: all rows of all slots.
const Tensor& all_entries(const Tensor& new_BK, const kernels::CompressorState* state) {
  return state != nullptr ? state->entries_SNK : new_BK;
}

// int32 [T, A]. Frozen: no gradient passes.
Tensor choose_entries(const BlockCall& call, const IndexerWeightsOf<Matrix>& weights, const AttentionInput& input) {
  const at::NoGradGuard no_grad;
  const Config& c = call.config();
  const Pass& pass = call.pass;
  const Profile& profile = pass.profile;
  const int64_t heads = c.index_n_heads, dim = c.index_head_dim;
  kernels::CompressorState* state = call.cache != nullptr ? &call.cache->index : nullptr;
  const Tensor keys_BI = new_entries(call, weights.compressor, input.values_TD, pass.layout.csa,
                                     profile.index_sim ? EntryGrid::index_e2m1 : EntryGrid::none, state);
  call.see(Site::index_compressor, keys_BI);
  return chosen(call, &Choices::entries, &Choices::entries_TA, [&] {
    const Tensor heads_THI = kernels::linear_heads(input.query_in_TR, weights.wq_b, heads, rounding(profile));
    Tensor query_THI =
        kernels::rotate(heads_THI, pass.layout, pass.rope.compress, /*inverse=*/false, rounding(profile));
    if (profile.index_sim) query_THI = kernels::hadamard_e2m1(query_THI);
    const double scale = 1.0 / std::sqrt(static_cast<double>(dim)) / std::sqrt(static_cast<double>(heads));
    const Tensor weight_TH = project(profile, input.values_TD, weights.weights_proj);
    return kernels::choose_entries({query_THI, weight_TH, all_entries(keys_BI, state), scale, rounding(profile)},
                                   c.index_topk, pass.layout, pass.layout.csa);
  });
}

// Window keys by position, then compressed entries by index (decisions 5).
AttentionKeys attention_keys(const BlockCall& call, const AttentionWeightsOf<Matrix>& weights,
                             const AttentionInput& input, const Tensor& kv_TK) {
  AttentionKeys keys;
  keys.kv_TK = kv_TK;
  if (call.cache != nullptr) keys.ring_SXK = call.cache->window_SXK;
  if (call.kind == LayerKind::window) return keys;
  const Layout& layout = call.pass.layout;
  const bool csa = call.kind == LayerKind::csa;
  keys.entry_layout = csa ? &layout.csa : &layout.hca;
  kernels::CompressorState* state = call.cache != nullptr ? &call.cache->main : nullptr;
  const Tensor entries_BK = new_entries(call, *weights.compressor, input.values_TD, *keys.entry_layout,
                                        call.pass.profile.kv_sim ? EntryGrid::kv_e4m3 : EntryGrid::none, state);
  call.see(Site::compressor, entries_BK);
  keys.entries_BK = all_entries(entries_BK, state);
  if (csa) {
    keys.chosen_TA = choose_entries(call, *weights.indexer, input);
    call.see(Site::indexer_choice, keys.chosen_TA);
  }
  return keys;
}

}  // namespace

Tensor attention(const BlockCall& call, const AttentionWeightsOf<Matrix>& weights, const Tensor& input_TD) {
  const Config& c = call.config();
  const Profile& profile = call.pass.profile;
  const Layout& layout = call.pass.layout;
  const kernels::Rounding round = rounding(profile);
  const RopeTable& rope = call.kind == LayerKind::window ? call.pass.rope.window : call.pass.rope.compress;

  const Tensor in = linear_input(profile, input_TD);
  const Tensor low_rank_TR =
      kernels::rms_norm(project(profile, in, weights.wq_a), weights.q_norm, c.rms_norm_eps, round);
  const AttentionInput input{input_TD, linear_input(profile, low_rank_TR)};
  const Tensor query_THK = kernels::query_heads(project(profile, input.query_in_TR, weights.wq_b),
                                                c.num_attention_heads, c.rms_norm_eps, layout, rope, round);
  call.see(Site::query, query_THK);
  const Tensor kv_TK = kernels::kv_rows(project(profile, in, weights.wkv), weights.kv_norm,
                                        {c.rms_norm_eps, round, profile.kv_sim}, layout, rope);
  call.see(Site::window_kv, kv_TK);

  const AttentionKeys keys = attention_keys(call, weights, input, kv_TK);
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim));
  const Tensor out_THK = kernels::attend(query_THK, keys, weights.attn_sink, scale, layout, round);
  if (call.cache != nullptr) kernels::keep_window(kv_TK, layout, call.cache->window_SXK);
  call.see(Site::attention, out_THK);

  // wo_a: unquantised activations in every profile (decisions 2).
  const Tensor turned_THK = kernels::rotate(out_THK, layout, rope, /*inverse=*/true, round);
  const Tensor groups = kernels::grouped_linear(turned_THK, weights.wo_a, round);
  return project(profile, linear_input(profile, groups), weights.wo_b);
}

}  // namespace model
