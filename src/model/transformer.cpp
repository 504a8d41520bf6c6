// Layers in order, the ends of the model, and the MTP block.
#include "model/transformer.h"

#include "model/attention.h"
#include "model/hyper_connection.h"
#include "model/moe.h"
#include "model/numerics.h"
#include "model/recompute.h"

namespace model {
namespace {

struct BlockCall {
  LayerKind kind = LayerKind::window;
  LayerCache* cache = nullptr;
  Tensor* entries = nullptr;
  Tensor* experts = nullptr;
};

Tensor& at_layer(std::vector<Tensor>& per_layer, size_t layer) {
  if (per_layer.size() <= layer) per_layer.resize(layer + 1);
  return per_layer[layer];
}

Tensor block(const Pass& pass, const BlockWeights& weights, const BlockCall& call, const Tensor& ids_T,
             const Tensor& streams_TMD) {
  const Config& c = pass.weights.config;
  const bool replay = pass.choices != nullptr && pass.choices->replay;
  const HcInput attn = hc_pre(c, pass.profile, weights.hc_attn, streams_TMD);
  const Tensor attn_in = rms_norm(pass.profile, attn.input_TD, weights.attn_norm, c.rms_norm_eps);
  const AttentionCall attention_call{c, pass.profile, pass.layout, call.kind, call.cache, call.entries, replay};
  const Tensor mid_TMD = hc_post(pass.profile, attention(attention_call, weights.attn, attn_in), streams_TMD, attn);
  const HcInput ffn = hc_pre(c, pass.profile, weights.hc_ffn, mid_TMD);
  const Tensor ffn_in = rms_norm(pass.profile, ffn.input_TD, weights.ffn_norm, c.rms_norm_eps);
  const Routing routing = route(c, weights.ffn, ffn_in, ids_T, call.experts, replay);
  return hc_post(pass.profile, moe(c, pass.profile, weights.ffn, ffn_in, routing), mid_TMD, ffn);
}

}  // namespace

Tensor embed_streams(const Pass& pass) {
  const Tensor rows_TD = gather_rows(pass.weights.embed, pass.ids_T);
  return rows_TD.unsqueeze(1).expand({-1, pass.weights.config.hc_mult, -1}).contiguous();
}

Tensor forward_layer(const Pass& pass, int64_t layer, const Tensor& streams_TMD) {
  const auto l = static_cast<size_t>(layer);
  CHECK(pass.cache == nullptr || !at::GradMode::is_enabled(), "a pass over a cache has no gradient");
  CHECK((pass.cache != nullptr) == pass.layout.cached);
  BlockCall call{pass.weights.config.layer_types[l], pass.cache != nullptr ? &pass.cache->layer(layer) : nullptr};
  if (pass.choices != nullptr) {
    call.experts = &at_layer(pass.choices->experts_TA, l);
    Tensor& entries = at_layer(pass.choices->entries_TN, l);
    call.entries = call.kind == LayerKind::csa ? &entries : nullptr;
  }
  return block(pass, pass.weights.layers[l], call, pass.ids_T, streams_TMD);
}

Tensor forward_streams(const Pass& pass) {
  Tensor streams_TMD = embed_streams(pass);
  for (int64_t layer = 0; layer < pass.weights.config.num_hidden_layers; ++layer) {
    if (pass.recompute) {
      streams_TMD =
          with_recompute([pass, layer](const Tensor& input) { return forward_layer(pass, layer, input); }, streams_TMD);
    } else {
      streams_TMD = forward_layer(pass, layer, streams_TMD);
    }
  }
  return streams_TMD;
}

Tensor final_hidden(const Weights& weights, const Profile& profile, const Tensor& streams_NMD) {
  return rms_norm(profile, hc_head(weights.config, profile, weights.hc_head, streams_NMD), weights.norm,
                  weights.config.rms_norm_eps);
}

Tensor head_logits(const Weights& weights, const Tensor& hidden_ND) { return at::linear(hidden_ND, weights.head); }

Tensor mtp_streams(const Pass& pass, const Tensor& streams_TMD, const Tensor& next_ids_T) {
  CHECK(pass.weights.mtp.has_value());
  const MtpWeights& mtp = *pass.weights.mtp;
  const double eps = pass.weights.config.rms_norm_eps;
  const Tensor next_TD = rms_norm(pass.profile, gather_rows(pass.weights.embed, next_ids_T), mtp.enorm, eps);
  const Tensor from_next_TD = project(pass.profile, linear_input(pass.profile, next_TD), mtp.e_proj);
  const Tensor normed_TMD = rms_norm(pass.profile, streams_TMD, mtp.hnorm, eps);
  const Tensor from_streams_TMD = project(pass.profile, linear_input(pass.profile, normed_TMD), mtp.h_proj);
  const Tensor input_TMD = rounded(pass.profile, from_next_TD.unsqueeze(1) + from_streams_TMD);
  BlockCall call;
  if (pass.choices != nullptr) call.experts = &at_layer(pass.choices->experts_TA, pass.weights.layers.size());
  return block(pass, mtp.block, call, next_ids_T, input_TMD);
}

Tensor mtp_logits(const Weights& weights, const Profile& profile, const Tensor& mtp_streams_NMD) {
  CHECK(weights.mtp.has_value());
  const Tensor hidden_ND = hc_head(weights.config, profile, weights.mtp->hc_head, mtp_streams_NMD);
  return head_logits(weights, rms_norm(profile, hidden_ND, weights.mtp->norm, weights.config.rms_norm_eps));
}

}  // namespace model
