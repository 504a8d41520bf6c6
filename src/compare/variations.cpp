// The list, by the part of a layer that each is about.
#include "compare/variations.h"

#include <fmt/format.h>

namespace compare {
namespace {

using model::Config;
using model::LayerKind;
using model::Site;
using Sites = std::vector<Site>;

const Sites kTurned = {Site::query,          Site::window_kv,  Site::compressor, Site::index_compressor,
                       Site::indexer_choice, Site::attn_output};

// Changes the config and what follows from it.
std::function<void(Definition&)> with_config(std::function<void(Config&)> change) {
  return [change = std::move(change)](Definition& d) {
    change(d.weights.config);
    d.follow_config();
  };
}

// The table of window layers from frequencies with YaRN on this base.
std::function<void(Definition&)> yarn_on_window_layers(double theta) {
  return [theta](Definition& d) {
    Config config = d.weights.config;
    config.compress_rope_theta = theta;
    const auto positions = static_cast<int64_t>(d.layout.num_tokens);
    d.rope.window = model::RopeTables::make(config, positions, d.weights.embed.device()).compress;
  };
}

void add_rotary(const Config& c, LayerKind kind, std::vector<Variation>& list) {
  if (kind == LayerKind::window) {
    if (c.rope_scaling) {
      for (const double theta : {c.rope_theta, c.compress_rope_theta}) {
        list.push_back(
            {"yarn_on_window_layers", kTurned,
             fmt::format("uses YaRN (factor {}, base {}) on a window layer, which has plain rotary embedding of "
                         "base {}",
                         c.rope_scaling->factor, theta, c.rope_theta),
             yarn_on_window_layers(theta)});
      }
    }
    list.push_back(
        {"rope", kTurned,
         fmt::format("uses base {} on a window layer, which has base {}", c.compress_rope_theta, c.rope_theta),
         with_config([](Config& v) { v.rope_theta = v.compress_rope_theta; })});
    return;
  }
  if (c.rope_scaling) {
    list.push_back({"rope", kTurned, "leaves YaRN out on a layer with a compressor",
                    with_config([](Config& v) { v.rope_scaling.reset(); })});
  }
  list.push_back(
      {"rope", kTurned,
       fmt::format("uses base {} on a layer with a compressor, which has base {}", c.rope_theta, c.compress_rope_theta),
       with_config([](Config& v) { v.compress_rope_theta = v.rope_theta; })});
  list.push_back({"rope", kTurned, fmt::format("uses base {} without YaRN on a layer with a compressor", c.rope_theta),
                  with_config([](Config& v) {
                    v.compress_rope_theta = v.rope_theta;
                    v.rope_scaling.reset();
                  })});
}

void add_attention(const Config& c, std::vector<Variation>& list) {
  for (const int64_t step : {-1, 1}) {
    if (c.sliding_window + step < 1) continue;
    list.push_back(
        {"window",
         {Site::attention},
         fmt::format("attends to a window of {} tokens (each token and the {} before it), the config says {}",
                     c.sliding_window + step, c.sliding_window + step - 1, c.sliding_window),
         [step](Definition& d) { d.layout.window += step; }});
  }
  list.push_back({"attn_sink", {Site::attention}, "leaves the attention sink out", [](Definition& d) {
                    for (auto& layer : d.weights.layers)
                      layer.attn.attn_sink = at::full_like(layer.attn.attn_sink, -1e30);
                  }});
}

void add_experts(const Config& c, std::vector<Variation>& list) {
  if (c.swiglu_limit > 0) {
    list.push_back({"shared_clamp",
                    {Site::shared_output},
                    c.clamp_shared_expert
                        ? fmt::format("does not clamp the shared expert (swiglu_limit {})", c.swiglu_limit)
                        : "clamps the shared expert, the config does not",
                    with_config([](Config& v) { v.clamp_shared_expert = !v.clamp_shared_expert; })});
  }
  list.push_back(
      {"router_weights",
       {Site::router_weight},
       fmt::format("{} the weights of the chosen experts", c.norm_topk_prob ? "does not normalise" : "normalises"),
       with_config([](Config& v) { v.norm_topk_prob = !v.norm_topk_prob; })});
  list.push_back({"router_weights",
                  {Site::router_weight},
                  fmt::format("leaves out routed_scaling_factor {}", c.routed_scaling_factor),
                  with_config([](Config& v) { v.routed_scaling_factor = 1; })});
  list.push_back({"router_bias", {Site::router_choice}, "chooses experts without the router's bias", [](Definition& d) {
                    for (auto& layer : d.weights.layers) {
                      if (layer.ffn.bias.defined()) layer.ffn.bias = at::zeros_like(layer.ffn.bias);
                    }
                  }});
}

void add_streams(const Config& c, std::vector<Variation>& list) {
  const auto transposed = [&](Site site, bool Definition::*flag) {
    list.push_back({"comb_transposed",
                    {site},
                    "mixes the streams by the transpose of comb: stream j takes comb[j, i] of stream i, not comb[i, j]",
                    [flag](Definition& d) { d.*flag = true; }});
  };
  transposed(Site::attn_hc_post, &Definition::transpose_attn_comb);
  transposed(Site::ffn_hc_post, &Definition::transpose_ffn_comb);
  for (const int64_t step : {-1, 1}) {
    if (c.hc_sinkhorn_iters + step < 1) continue;
    list.push_back({"sinkhorn",
                    {Site::attn_hc_post, Site::ffn_hc_post},
                    fmt::format("does {} Sinkhorn iterations, the config says {}", c.hc_sinkhorn_iters + step,
                                c.hc_sinkhorn_iters),
                    with_config([step](Config& v) { v.hc_sinkhorn_iters += step; })});
  }
}

void add_roundings(const model::Profile& profile, std::vector<Variation>& list) {
  list.push_back({"kv_simulation",
                  {Site::window_kv, Site::compressor},
                  profile.kv_sim ? "does not put KV entries on the e4m3 grid" : "puts KV entries on the e4m3 grid",
                  [](Definition& d) { d.profile.kv_sim = !d.profile.kv_sim; }});
  list.push_back({"index_simulation",
                  {Site::index_compressor, Site::indexer_choice},
                  profile.index_sim ? "does not put indexer keys and queries on the e2m1 grid"
                                    : "puts indexer keys and queries on the e2m1 grid",
                  [](Definition& d) { d.profile.index_sim = !d.profile.index_sim; }});
}

}  // namespace

std::vector<Variation> variations_of(const Definition& definition, int64_t layer) {
  const Config& config = definition.weights.config;
  std::vector<Variation> list;
  add_rotary(config, config.layer_types[static_cast<size_t>(layer)], list);
  add_attention(config, list);
  add_experts(config, list);
  add_streams(config, list);
  add_roundings(definition.profile, list);
  return list;
}

}  // namespace compare
