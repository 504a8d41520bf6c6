// The visitor over all parameters: each tensor's name, shape, storage and role stand here, once. Included by
// weights.cpp (masters) and run_weights.cpp (packed) only.
#pragma once
#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "model/weights.h"

namespace model {

// Walks the parts of a model; `prefix` grows as in the native names.
template <class Matrix>
class Visitor {
 public:
  using Shape = std::vector<int64_t>;
  template <class T>
  using See = std::function<void(const TensorInfo&, T&)>;

  Visitor(const Config& config, const See<Tensor>& see_tensor, const See<Matrix>& see_matrix)
      : c(config), see_tensor_(see_tensor), see_matrix_(see_matrix) {}

  void hyper_connection(const std::string& prefix, HyperConnectionOf<Matrix>& hc, int64_t rows, int64_t num_scales) {
    plain(prefix + "_fn", hc.fn, {rows, c.hc_mult * c.hidden_size}, StoredAs::f32);
    plain(prefix + "_base", hc.base, {rows}, StoredAs::f32);
    plain(prefix + "_scale", hc.scale, {num_scales}, StoredAs::f32);
  }

  void block(const std::string& p, BlockWeightsOf<Matrix>& w, LayerKind kind, bool hash) {
    const int64_t mixes = (2 + c.hc_mult) * c.hc_mult;
    hyper_connection(p + "hc_attn", w.hc_attn, mixes, 3);
    hyper_connection(p + "hc_ffn", w.hc_ffn, mixes, 3);
    plain(p + "attn_norm.weight", w.attn_norm, {c.hidden_size});
    plain(p + "ffn_norm.weight", w.ffn_norm, {c.hidden_size});
    attention(p + "attn.", w.attn, kind);
    moe(p + "ffn.", w.ffn, hash);
  }

  void top(TopWeightsOf<Matrix>& w) {
    plain("embed.weight", w.embed, {c.vocab_size, c.hidden_size}, StoredAs::bf16, ShardAxis::rows);
    plain("head.weight", w.head, {c.vocab_size, c.hidden_size}, StoredAs::bf16, ShardAxis::rows);
    plain("norm.weight", w.norm, {c.hidden_size});
    hyper_connection("hc_head", w.hc_head, c.hc_mult, 1);
    for (size_t i = 0; i < w.layers.size(); ++i) {
      block(fmt::format("layers.{}.", i), w.layers[i], c.layer_types[i], c.hash_layers[i]);
    }
    if (w.mtp) mtp("mtp.0.", *w.mtp);
  }

 private:
  template <class T>
  void see(TensorInfo info, T& value) {
    // No decay for mHC parameters and ape, matrices or not: they are the f32 ones, with sinks and biases.
    info.decays = info.learns && info.shape.size() >= 2 && !info.published_f32();
    if constexpr (std::is_same_v<T, Matrix>) {
      see_matrix_(info, value);
    } else {
      see_tensor_(info, value);
    }
  }
  template <class T>
  void plain(std::string name, T& value, Shape shape, StoredAs stored = StoredAs::bf16,
             ShardAxis shard = ShardAxis::replicated, bool learns = true) {
    see({std::move(name), std::move(shape), stored, shard, learns}, value);
  }
  void linear(std::string name, Matrix& matrix, Shape shape, ShardAxis shard, bool learns = true) {
    plain(std::move(name), matrix, std::move(shape), StoredAs::e4m3_128x128, shard, learns);
  }

  void compressor(const std::string& p, CompressorWeightsOf<Matrix>& w, int64_t ratio, bool overlap, int64_t dim,
                  bool learns) {
    const int64_t channels = overlap ? 2 * dim : dim;
    plain(p + "ape", w.ape, {ratio, channels}, StoredAs::f32, ShardAxis::replicated, learns);
    plain(p + "wkv.weight", w.wkv, {channels, c.hidden_size}, StoredAs::bf16, ShardAxis::replicated, learns);
    plain(p + "wgate.weight", w.wgate, {channels, c.hidden_size}, StoredAs::bf16, ShardAxis::replicated, learns);
    const StoredAs norm = c.compressor_norm_f32.value_or(false) ? StoredAs::f32 : StoredAs::bf16;
    plain(p + "norm.weight", w.norm, {dim}, norm, ShardAxis::replicated, learns);
  }

  void attention(const std::string& p, AttentionWeightsOf<Matrix>& w, LayerKind kind) {
    const int64_t heads_dim = c.num_attention_heads * c.head_dim;
    linear(p + "wq_a.weight", w.wq_a, {c.q_lora_rank, c.hidden_size}, ShardAxis::replicated);
    plain(p + "q_norm.weight", w.q_norm, {c.q_lora_rank});
    linear(p + "wq_b.weight", w.wq_b, {heads_dim, c.q_lora_rank}, ShardAxis::rows);
    linear(p + "wkv.weight", w.wkv, {c.head_dim, c.hidden_size}, ShardAxis::replicated);
    plain(p + "kv_norm.weight", w.kv_norm, {c.head_dim});
    TensorInfo wo_a{p + "wo_a.weight",
                    {c.o_groups * c.o_lora_rank, heads_dim / c.o_groups},
                    StoredAs::e4m3_128x128,
                    ShardAxis::rows};
    wo_a.groups = c.o_groups;
    see(std::move(wo_a), w.wo_a);
    linear(p + "wo_b.weight", w.wo_b, {c.hidden_size, c.o_groups * c.o_lora_rank}, ShardAxis::columns);
    plain(p + "attn_sink", w.attn_sink, {c.num_attention_heads}, StoredAs::f32, ShardAxis::rows);
    if (kind == LayerKind::window) return;
    const bool csa = kind == LayerKind::csa;
    if (!w.compressor) w.compressor.emplace();
    compressor(p + "compressor.", *w.compressor, csa ? c.csa_ratio : c.hca_ratio, csa, c.head_dim, true);
    if (!csa) return;
    if (!w.indexer) w.indexer.emplace();
    linear(p + "indexer.wq_b.weight", w.indexer->wq_b, {c.index_n_heads * c.index_head_dim, c.q_lora_rank},
           ShardAxis::rows, false);
    plain(p + "indexer.weights_proj.weight", w.indexer->weights_proj, {c.index_n_heads, c.hidden_size}, StoredAs::bf16,
          ShardAxis::rows, false);
    compressor(p + "indexer.compressor.", w.indexer->compressor, c.csa_ratio, true, c.index_head_dim, false);
  }

  void experts(std::string name, Matrix& stack, Shape shape) {
    const StoredAs stored = c.expert_dtype == "fp4" ? StoredAs::e2m1_1x32 : StoredAs::e4m3_128x128;
    TensorInfo info{std::move(name), std::move(shape), stored, ShardAxis::expert, true};
    info.stack = c.n_routed_experts;
    see(std::move(info), stack);
  }

  void moe(const std::string& p, MoeWeightsOf<Matrix>& w, bool hash) {
    const int64_t dim = c.hidden_size, inner = c.moe_intermediate_size;
    plain(p + "gate.weight", w.gate, {c.n_routed_experts, dim}, StoredAs::bf16, ShardAxis::replicated, false);
    if (hash) {
      plain(p + "gate.tid2eid", w.tid2eid, {c.vocab_size, c.num_experts_per_tok}, StoredAs::i64, ShardAxis::replicated,
            false);
    } else {
      plain(p + "gate.bias", w.bias, {c.n_routed_experts}, StoredAs::f32, ShardAxis::replicated, false);
    }
    linear(p + "shared_experts.w1.weight", w.shared_w1, {inner, dim}, ShardAxis::rows);
    linear(p + "shared_experts.w2.weight", w.shared_w2, {dim, inner}, ShardAxis::columns);
    linear(p + "shared_experts.w3.weight", w.shared_w3, {inner, dim}, ShardAxis::rows);
    experts(p + "experts.{}.w1.weight", w.w1, {inner, dim});
    experts(p + "experts.{}.w2.weight", w.w2, {dim, inner});
    experts(p + "experts.{}.w3.weight", w.w3, {inner, dim});
  }

  void mtp(const std::string& p, MtpWeightsOf<Matrix>& w) {
    block(p, w.block, LayerKind::window, false);
    linear(p + "e_proj.weight", w.e_proj, {c.hidden_size, c.hidden_size}, ShardAxis::replicated);
    linear(p + "h_proj.weight", w.h_proj, {c.hidden_size, c.hidden_size}, ShardAxis::replicated);
    plain(p + "enorm.weight", w.enorm, {c.hidden_size});
    plain(p + "hnorm.weight", w.hnorm, {c.hidden_size});
    plain(p + "norm.weight", w.norm, {c.hidden_size});
    hyper_connection(p + "hc_head", w.hc_head, c.hc_mult, 1);
  }

  const Config& c;
  const See<Tensor>& see_tensor_;
  const See<Matrix>& see_matrix_;
};

}  // namespace model
