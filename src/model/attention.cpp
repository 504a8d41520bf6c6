// Queries, keys, the joint softmax and the output projection.
#include "model/attention.h"

#include "model/compressor.h"
#include "model/indexer.h"
#include "model/numerics.h"

namespace model {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class Attend : public torch::autograd::Function<Attend> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& query_QLHK, const Tensor& keys_QNK,
                        const Tensor& mask_QLN, const Tensor& sink_H, double scale) {
    const auto shape = query_QLHK.sizes().vec();
    const Tensor query = query_QLHK.flatten(1, 2);  // [Q, L*H, K]
    Tensor score = at::bmm(query, keys_QNK.transpose(1, 2)).mul_(scale).view({shape[0], shape[1], shape[2], -1});
    score.masked_fill_(~mask_QLN.unsqueeze(2), -std::numeric_limits<double>::infinity());
    const Tensor sink = sink_H.view({-1, 1});
    const Tensor largest = at::maximum(score.amax(-1, true), sink);
    Tensor weight = score.sub_(largest).exp_();
    const Tensor sink_weight = at::exp(sink - largest);
    const Tensor total = weight.sum(-1, true).add_(sink_weight);
    const Tensor out = at::bmm(weight.flatten(1, 2), keys_QNK).view(shape).div_(total);
    context->save_for_backward({query, keys_QNK, weight.div_(total), sink_weight / total, out});
    context->saved_data["scale"] = scale;
    return out;
  }

  // Spec 4.9: dS = P * (dP - <dO, o>); the shared vector collects both its roles.
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &query = saved[0], &keys = saved[1], &weight = saved[2], &sink_weight = saved[3], &out = saved[4];
    const double scale = context->saved_data["scale"].toDouble();
    const Tensor dout = grads[0].contiguous(), dout_QMK = dout.flatten(1, 2);
    const Tensor delta = (dout * out).sum(-1, true);
    Tensor dscore =
        at::bmm(dout_QMK, keys.transpose(1, 2)).view(weight.sizes()).sub_(delta).mul_(weight).mul_(scale).flatten(1, 2);
    const Tensor dquery = at::bmm(dscore, keys).view(out.sizes());
    Tensor dkeys = at::bmm(dscore.transpose(1, 2), query);
    dkeys.baddbmm_(weight.flatten(1, 2).transpose(1, 2), dout_QMK);
    const Tensor dsink = (sink_weight * delta).sum({0, 1, 3}).neg();
    return {dquery, dkeys, Tensor(), dsink, Tensor()};
  }
};

// Keys of the window: [Q, X, K]. Reads the ring before it is overwritten.
Tensor window_keys(const AttentionCall& call, const Tensor& kv_TK) {
  const Layout& layout = call.layout;
  if (call.cache == nullptr) return gather_rows(kv_TK, layout.window_QX);
  Tensor& ring = call.cache->window_SXK;
  const Tensor keys =
      gather_rows(at::cat({ring.index_select(0, layout.slot_S).flatten(0, 1), kv_TK}), layout.window_QX);
  ring.flatten(0, 1).index_copy_(0, layout.ring_to, kv_TK.index_select(0, layout.ring_from));
  return keys;
}

struct KeySet {
  Tensor keys_QNK, mask_QLN;
};

// Window keys by position, then compressed entries by index (decisions 5).
KeySet key_set(const AttentionCall& call, const AttentionWeights& weights, const Tensor& input_TD,
               const Tensor& query_in_TR, const Tensor& kv_TK) {
  KeySet set{window_keys(call, kv_TK), call.layout.in_window_QLX};
  if (call.kind == LayerKind::window) return set;
  const bool csa = call.kind == LayerKind::csa;
  const CompressLayout& blocks = csa ? call.layout.csa : call.layout.hca;
  CompressorState* state = call.cache != nullptr ? &call.cache->main : nullptr;
  Tensor entries = compress(call.config, call.profile, *weights.compressor, input_TD, call.layout, blocks, state);
  if (entries.defined()) entries = kv_entry(call.profile, entries, call.config.qk_rope_head_dim);
  const Tensor pool = entry_pool(entries, blocks, state);
  Tensor chosen_QLN = blocks.visible_QLN;
  if (csa) {
    CompressorState* index_state = call.cache != nullptr ? &call.cache->index : nullptr;
    chosen_QLN = choose_entries(call.config, call.profile, *weights.indexer, {input_TD.detach(), query_in_TR.detach()},
                                call.layout, index_state, call.entries_TA, call.replay);
  }
  if (!pool.defined()) return set;
  return {at::cat({set.keys_QNK, gather_rows(pool, blocks.entries_QN)}, 1), at::cat({set.mask_QLN, chosen_QLN}, 2)};
}

// u[g] = wo_a[g] . o[g]: bf16 weights, unquantised activations in every profile (decisions 2). [T, H, K] -> [T, G*O]
Tensor grouped_output(const AttentionCall& call, const Tensor& weight, const Tensor& out_THK) {
  const int64_t groups = call.config.o_groups;
  const Tensor in_GTI = out_THK.reshape({out_THK.size(0), groups, -1}).transpose(0, 1);
  const Tensor out_GTO = at::bmm(in_GTI, weight.view({groups, call.config.o_lora_rank, -1}).transpose(1, 2));
  return rounded(call.profile, out_GTO.transpose(0, 1).reshape({out_THK.size(0), -1}));
}

}  // namespace

Tensor attend(const Tensor& query_QLHK, const Tensor& keys_QNK, const Tensor& mask_QLN, const Tensor& sink_H,
              double scale) {
  return Attend::apply(query_QLHK, keys_QNK, mask_QLN, sink_H, scale);
}

Tensor attention(const AttentionCall& call, const AttentionWeights& weights, const Tensor& input_TD) {
  const Config& c = call.config;
  const Profile& profile = call.profile;
  const Layout& layout = call.layout;
  const Rotation& rope = call.kind == LayerKind::window ? layout.rope_window_T : layout.rope_compress_T;
  const Tensor in = linear_input(profile, input_TD);
  const Tensor low_rank_TR = rms_norm(profile, project(profile, in, weights.wq_a), weights.q_norm, c.rms_norm_eps);
  const Tensor query_in_TR = linear_input(profile, low_rank_TR);
  const Tensor heads_THK =
      project(profile, query_in_TR, weights.wq_b).unflatten(1, {c.num_attention_heads, c.head_dim});
  const Tensor query_THK = rounded(profile, rotate(rms_norm(profile, heads_THK, {}, c.rms_norm_eps), rope));
  const Tensor kv = rms_norm(profile, project(profile, in, weights.wkv), weights.kv_norm, c.rms_norm_eps);
  const Tensor kv_TK = kv_entry(profile, rounded(profile, rotate(kv, rope)), c.qk_rope_head_dim);
  const KeySet set = key_set(call, weights, input_TD, query_in_TR, kv_TK);

  const Tensor query_QLHK = gather_rows(query_THK.flatten(1), layout.block_token_QL)
                                .view({layout.num_blocks, layout.block_len, c.num_attention_heads, c.head_dim});
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim));
  const Tensor out_QLHK = attend(query_QLHK, set.keys_QNK, set.mask_QLN, weights.attn_sink, scale);
  const Tensor out_THK = gather_rows(out_QLHK.flatten(0, 1).flatten(1), layout.token_block_T)
                             .unflatten(1, {c.num_attention_heads, c.head_dim});
  const Tensor turned_THK = rounded(profile, rotate(rounded(profile, out_THK), rope, /*inverse=*/true));
  const Tensor groups = grouped_output(call, weights.wo_a, turned_THK);
  return project(profile, linear_input(profile, groups), weights.wo_b);
}

}  // namespace model
