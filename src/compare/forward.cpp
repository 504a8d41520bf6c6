// Passes layer by layer, and collecting what their probes see.
#include "compare/forward.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/hyper_connection.h"
#include "kernels/log_prob.h"
#include "model/numerics.h"

namespace compare {
namespace {

using model::Site;

Tensor device_ids(const Ids& ids, int64_t first, int64_t count, tensor::Device device) {
  const std::vector<int64_t> wide(ids.begin() + first, ids.begin() + first + count);
  return at::tensor(wide, at::kLong).to(device);
}

// Values of several chunks, joined along their rows.
class Collector {
 public:
  model::Probe probe() {
    return [this](int64_t, Site site, const Tensor& value) { parts_[site].push_back(value.detach().clone()); };
  }
  Sites take() {
    Sites sites;
    for (auto& [site, parts] : parts_) sites[site] = parts.size() == 1 ? parts.front() : at::cat(parts, 0);
    return sites;
  }

 private:
  std::map<Site, std::vector<Tensor>> parts_;
};

// What hc_post gives when stream j takes comb[j, i] of stream i.
Tensor mixed_by_transpose(const Definition& definition, const model::HyperConnectionOf<model::Matrix>& weights,
                          const Tensor& streams_TMD, const Tensor& output_TD) {
  const model::Config& c = definition.weights.config;
  const kernels::HcOptions options{c.hc_sinkhorn_iters, c.hc_eps, c.rms_norm_eps, model::rounding(definition.profile)};
  const kernels::HcInput in = kernels::hc_pre(streams_TMD, {weights.fn, weights.base, weights.scale}, options);
  return kernels::hc_post(output_TD, streams_TMD, in.post_TM, in.comb_TMM.transpose(1, 2).contiguous(),
                          options.rounding);
}

}  // namespace

ModelForward::ModelForward(const model::RunWeights& weights, const model::Profile& profile, Tensor absent_V,
                           int64_t chunk)
    : weights_(weights), profile_(profile), absent_V_(std::move(absent_V)), chunk_(chunk) {
  CHECK(chunk >= 0);
}

std::string ModelForward::path() const {
  return chunk_ == 0 ? "in one pass without a cache" : fmt::format("in chunks of {} tokens over a cache", chunk_);
}

Tensor ModelForward::start(const Ids& ids) {
  const at::NoGradGuard no_grad;
  const model::Config& config = weights_.config;
  const tensor::Device device = weights_.embed.device();
  const auto count = static_cast<int64_t>(ids.size());
  ids_ = ids;
  chunks_.clear();
  cache_.reset();
  rope_ = model::RopeTables::make(config, count, device);
  // A slot has room for one entry of every compressor.
  const int64_t capacity = chunk_ == 0 ? 0 : std::max({count, config.csa_ratio, config.hca_ratio});
  if (chunk_ > 0) cache_.emplace(config, 1, capacity, device);
  for (int64_t first = 0; first < count;) {
    const int64_t length = chunk_ == 0 ? count : std::min(chunk_, count - first);
    const model::Span span{first, length};
    chunks_.push_back(
        {first, length, model::make_layout(config, {&span, 1}, capacity), device_ids(ids, first, length, device)});
    first += length;
  }
  std::vector<Tensor> streams;
  for (const Chunk& chunk : chunks_) {
    streams.push_back(model::embed_streams(
        {.weights = weights_, .profile = profile_, .layout = chunk.layout, .rope = rope_, .ids_T = chunk.ids_T}));
  }
  return at::cat(streams, 0);
}

LayerRecord ModelForward::layer(int64_t layer, const Tensor& streams_TMD) {
  const at::NoGradGuard no_grad;
  Collector collector;
  const model::Probe probe = collector.probe();
  for (const Chunk& chunk : chunks_) {
    const model::Pass pass{.weights = weights_,
                           .profile = profile_,
                           .layout = chunk.layout,
                           .rope = rope_,
                           .ids_T = chunk.ids_T,
                           .cache = cache_ ? &*cache_ : nullptr,
                           .probe = &probe};
    model::forward_layer(pass, layer, streams_TMD.narrow(0, chunk.first, chunk.count));
  }
  return {layer, streams_TMD, collector.take()};
}

Tensor ModelForward::final_hidden(const Tensor& streams_TMD) {
  const at::NoGradGuard no_grad;
  return model::final_hidden(weights_, profile_, streams_TMD);
}

LogProbs ModelForward::log_probs(const Tensor& hidden_TD, double temperature) {
  const at::NoGradGuard no_grad;
  LogProbs values = {std::nullopt};
  const int64_t rows = hidden_TD.size(0) - 1;
  if (rows == 0) return values;
  kernels::LogProbOptions options;
  options.temperature = temperature;
  options.absent_V = absent_V_;
  const Tensor log_prob_N = kernels::chunked_log_probs(hidden_TD.narrow(0, 0, rows), weights_.head,
                                                       device_ids(ids_, 1, rows, hidden_TD.device()), options)
                                .log_prob_N.to(at::kCPU)
                                .contiguous();
  values.insert(values.end(), log_prob_N.const_data_ptr<float>(), log_prob_N.const_data_ptr<float>() + rows);
  return values;
}

Definition Definition::of(const model::RunWeights& weights, const model::Profile& profile, int64_t num_tokens) {
  Definition definition{weights, profile, {}, {}};
  const model::Span span{0, num_tokens};
  definition.layout.spans = {span};
  definition.follow_config();
  return definition;
}

void Definition::follow_config() {
  const model::Span span{0, layout.spans.front().count};
  layout = model::make_layout(weights.config, {&span, 1});
  rope = model::RopeTables::make(weights.config, span.count, weights.embed.device());
}

LayerRecord run_layer(const Definition& definition, const Ids& ids, int64_t layer, const Tensor& streams_TMD) {
  const at::NoGradGuard no_grad;
  Collector collector;
  const model::Probe probe = collector.probe();
  model::forward_layer({.weights = definition.weights,
                        .profile = definition.profile,
                        .layout = definition.layout,
                        .rope = definition.rope,
                        .ids_T = device_ids(ids, 0, static_cast<int64_t>(ids.size()), streams_TMD.device()),
                        .probe = &probe},
                       layer, streams_TMD);
  LayerRecord record{layer, streams_TMD, collector.take()};
  const auto& block = definition.weights.layers[static_cast<size_t>(layer)];
  if (definition.transpose_attn_comb) {
    record.sites[Site::attn_hc_post] =
        mixed_by_transpose(definition, block.hc_attn, streams_TMD, record.sites.at(Site::attn_output));
  }
  if (definition.transpose_ffn_comb) {
    record.sites[Site::ffn_hc_post] = mixed_by_transpose(definition, block.hc_ffn, record.sites.at(Site::attn_hc_post),
                                                         record.sites.at(Site::expert_output));
  }
  return record;
}

}  // namespace compare
