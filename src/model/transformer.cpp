// Layers in order, the ends of the model, and the MTP block.
#include "model/transformer.h"

#include "kernels/embedding.h"
#include "kernels/hyper_connection.h"
#include "kernels/rms_norm.h"
#include "model/attention.h"
#include "model/moe.h"
#include "model/numerics.h"
#include "model/recompute.h"

namespace model {
namespace {

kernels::HcOptions hc_options(const Config& config, const Profile& profile) {
  return {config.hc_sinkhorn_iters, config.hc_eps, config.rms_norm_eps, rounding(profile)};
}

kernels::HcWeights hc_weights(const HyperConnectionOf<Matrix>& weights) {
  return {weights.fn, weights.base, weights.scale};
}

Tensor block(const BlockCall& call, const BlockWeightsOf<Matrix>& weights, const Tensor& ids_T,
             const Tensor& streams_TMD) {
  const Config& c = call.config();
  const kernels::HcOptions options = hc_options(c, call.pass.profile);
  const kernels::HcInput attn = kernels::hc_pre(streams_TMD, hc_weights(weights.hc_attn), options);
  call.see(Site::attn_hc_pre, attn.input_TD);
  const Tensor attn_in = kernels::rms_norm(attn.input_TD, weights.attn_norm, c.rms_norm_eps, options.rounding);
  const Tensor attn_out = attention(call, weights.attn, attn_in);
  call.see(Site::attn_output, attn_out);
  const Tensor mid_TMD = kernels::hc_post(attn_out, streams_TMD, attn.post_TM, attn.comb_TMM, options.rounding);
  call.see(Site::attn_hc_post, mid_TMD);

  const kernels::HcInput ffn = kernels::hc_pre(mid_TMD, hc_weights(weights.hc_ffn), options);
  call.see(Site::ffn_hc_pre, ffn.input_TD);
  const Tensor ffn_in = kernels::rms_norm(ffn.input_TD, weights.ffn_norm, c.rms_norm_eps, options.rounding);
  const Tensor ffn_out = moe(call, weights.ffn, ffn_in, ids_T);
  const Tensor out_TMD = kernels::hc_post(ffn_out, mid_TMD, ffn.post_TM, ffn.comb_TMM, options.rounding);
  call.see(Site::ffn_hc_post, out_TMD);
  return out_TMD;
}

}  // namespace

Tensor embed_streams(const Pass& pass) {
  const Tensor streams_TMD = kernels::embed(pass.weights.embed, pass.ids_T, pass.weights.config.hc_mult);
  if (pass.probe != nullptr) (*pass.probe)(0, Site::embedding, streams_TMD);
  return streams_TMD;
}

Tensor forward_layer(const Pass& pass, int64_t layer, const Tensor& streams_TMD) {
  const auto l = static_cast<size_t>(layer);
  CHECK(pass.cache == nullptr || !at::GradMode::is_enabled(), "a pass over a cache has no gradient");
  CHECK((pass.cache != nullptr) == pass.layout.cached);
  const BlockCall call{pass, layer, pass.weights.config.layer_types[l],
                       pass.cache != nullptr ? &pass.cache->layer(layer) : nullptr};
  return block(call, pass.weights.layers[l], pass.ids_T, streams_TMD);
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

Tensor final_hidden(const RunWeights& weights, const Profile& profile, const Tensor& streams_NMD) {
  const kernels::HcOptions options = hc_options(weights.config, profile);
  return kernels::rms_norm(kernels::hc_head(streams_NMD, hc_weights(weights.hc_head), options), weights.norm,
                           weights.config.rms_norm_eps, options.rounding);
}

Tensor head_logits(const RunWeights& weights, const Tensor& hidden_ND) {
  return kernels::linear(hidden_ND, weights.head, kernels::Rounding::none);
}

Tensor mtp_streams(const Pass& pass, const Tensor& streams_TMD, const Tensor& next_ids_T) {
  CHECK(pass.weights.mtp.has_value());
  const MtpWeightsOf<Matrix>& mtp = *pass.weights.mtp;
  const Profile& profile = pass.profile;
  const double eps = pass.weights.config.rms_norm_eps;
  const Tensor next_TD = kernels::rms_norm(kernels::embed(pass.weights.embed, next_ids_T, 1).flatten(1), mtp.enorm, eps,
                                           rounding(profile));
  const Tensor from_next_TD = project(profile, linear_input(profile, next_TD), mtp.e_proj);
  const Tensor normed_TMD = kernels::rms_norm(streams_TMD, mtp.hnorm, eps, rounding(profile));
  const Tensor from_streams_TMD = project(profile, linear_input(profile, normed_TMD), mtp.h_proj);
  Tensor input_TMD = from_next_TD.unsqueeze(1) + from_streams_TMD;
  if (profile.round_bf16) input_TMD = kernels::round_bf16(input_TMD);
  const BlockCall call{pass, pass.weights.config.num_hidden_layers};
  return block(call, mtp.block, next_ids_T, input_TMD);
}

Tensor mtp_logits(const RunWeights& weights, const Profile& profile, const Tensor& mtp_streams_NMD) {
  CHECK(weights.mtp.has_value());
  const kernels::HcOptions options = hc_options(weights.config, profile);
  const Tensor hidden_ND = kernels::hc_head(mtp_streams_NMD, hc_weights(weights.mtp->hc_head), options);
  return head_logits(weights,
                     kernels::rms_norm(hidden_ND, weights.mtp->norm, weights.config.rms_norm_eps, options.rounding));
}

}  // namespace model
