// The visitor over all parameters: each tensor's name, shape, storage and role stand here, once.
#include "model/weights.h"

#include "base/error.h"

namespace model {
namespace {

using See = std::function<void(const TensorInfo&, Tensor&)>;
using Shape = std::vector<int64_t>;

// Walks the parts of a model; `prefix` grows as in the native names.
class Visitor {
 public:
  Visitor(const Config& config, const See& see) : c(config), see_(see) {}

  void hyper_connection(const std::string& prefix, HyperConnection& hc, int64_t rows, int64_t num_scales) {
    plain(prefix + "_fn", hc.fn, {rows, c.hc_mult * c.hidden_size}, StoredAs::f32);
    plain(prefix + "_base", hc.base, {rows}, StoredAs::f32);
    plain(prefix + "_scale", hc.scale, {num_scales}, StoredAs::f32);
  }

  void block(const std::string& p, BlockWeights& w, LayerKind kind, bool hash) {
    const int64_t mixes = (2 + c.hc_mult) * c.hc_mult;
    hyper_connection(p + "hc_attn", w.hc_attn, mixes, 3);
    hyper_connection(p + "hc_ffn", w.hc_ffn, mixes, 3);
    plain(p + "attn_norm.weight", w.attn_norm, {c.hidden_size});
    plain(p + "ffn_norm.weight", w.ffn_norm, {c.hidden_size});
    attention(p + "attn.", w.attn, kind);
    moe(p + "ffn.", w.ffn, hash);
  }

  void top(Weights& w) {
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
  void see(TensorInfo info, Tensor& tensor) {
    // No decay for mHC parameters and ape, matrices or not: they are the f32 ones, with sinks and biases.
    info.decays = info.learns && info.shape.size() >= 2 && !info.published_f32();
    see_(info, tensor);
  }
  void plain(std::string name, Tensor& tensor, Shape shape, StoredAs stored = StoredAs::bf16,
             ShardAxis shard = ShardAxis::replicated, bool learns = true) {
    see({std::move(name), std::move(shape), stored, shard, learns}, tensor);
  }
  void linear(std::string name, Tensor& tensor, Shape shape, ShardAxis shard, bool learns = true) {
    plain(std::move(name), tensor, std::move(shape), StoredAs::e4m3_128x128, shard, learns);
  }

  void compressor(const std::string& p, CompressorWeights& w, int64_t ratio, bool overlap, int64_t dim, bool learns) {
    const int64_t channels = overlap ? 2 * dim : dim;
    plain(p + "ape", w.ape, {ratio, channels}, StoredAs::f32, ShardAxis::replicated, learns);
    plain(p + "wkv.weight", w.wkv, {channels, c.hidden_size}, StoredAs::bf16, ShardAxis::replicated, learns);
    plain(p + "wgate.weight", w.wgate, {channels, c.hidden_size}, StoredAs::bf16, ShardAxis::replicated, learns);
    const StoredAs norm = c.compressor_norm_f32.value_or(false) ? StoredAs::f32 : StoredAs::bf16;
    plain(p + "norm.weight", w.norm, {dim}, norm, ShardAxis::replicated, learns);
  }

  void attention(const std::string& p, AttentionWeights& w, LayerKind kind) {
    const int64_t heads_dim = c.num_attention_heads * c.head_dim;
    linear(p + "wq_a.weight", w.wq_a, {c.q_lora_rank, c.hidden_size}, ShardAxis::replicated);
    plain(p + "q_norm.weight", w.q_norm, {c.q_lora_rank});
    linear(p + "wq_b.weight", w.wq_b, {heads_dim, c.q_lora_rank}, ShardAxis::rows);
    linear(p + "wkv.weight", w.wkv, {c.head_dim, c.hidden_size}, ShardAxis::replicated);
    plain(p + "kv_norm.weight", w.kv_norm, {c.head_dim});
    linear(p + "wo_a.weight", w.wo_a, {c.o_groups * c.o_lora_rank, heads_dim / c.o_groups}, ShardAxis::rows);
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

  void experts(std::string name, Tensor& tensor, Shape shape) {
    const StoredAs stored = c.expert_dtype == "fp4" ? StoredAs::e2m1_1x32 : StoredAs::e4m3_128x128;
    TensorInfo info{std::move(name), std::move(shape), stored, ShardAxis::expert, true};
    info.stack = c.n_routed_experts;
    see(std::move(info), tensor);
  }

  void moe(const std::string& p, MoeWeights& w, bool hash) {
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

  void mtp(const std::string& p, MtpWeights& w) {
    block(p, w.block, LayerKind::window, false);
    linear(p + "e_proj.weight", w.e_proj, {c.hidden_size, c.hidden_size}, ShardAxis::replicated);
    linear(p + "h_proj.weight", w.h_proj, {c.hidden_size, c.hidden_size}, ShardAxis::replicated);
    plain(p + "enorm.weight", w.enorm, {c.hidden_size});
    plain(p + "hnorm.weight", w.hnorm, {c.hidden_size});
    plain(p + "norm.weight", w.norm, {c.hidden_size});
    hyper_connection(p + "hc_head", w.hc_head, c.hc_mult, 1);
  }

  const Config& c;
  const See& see_;
};

Shape stacked_shape(const TensorInfo& info) {
  Shape shape = info.shape;
  if (info.stack > 0) shape.insert(shape.begin(), info.stack);
  return shape;
}

}  // namespace

void Weights::visit(const See& see) { Visitor(config, see).top(*this); }

void Weights::visit(const std::function<void(const TensorInfo&, const Tensor&)>& see) const {
  const See see_mutable = [&](const TensorInfo& info, Tensor& tensor) { see(info, tensor); };
  Visitor(config, see_mutable).top(const_cast<Weights&>(*this));  // the visitor adds nothing to a complete structure
}

void Weights::visit_named(const std::function<void(const TensorInfo&, const Tensor&)>& see) const {
  visit([&](const TensorInfo& stack, const Tensor& tensor) {
    if (stack.stack == 0) return see(stack, tensor);
    TensorInfo info = stack;
    info.stack = 0;
    for (int64_t e = 0; e < stack.stack; ++e) {
      info.name = fmt::format(fmt::runtime(stack.name), e);
      see(info, tensor.defined() ? tensor.select(0, e) : Tensor());
    }
  });
}

Weights Weights::describe(const Config& config) {
  Weights weights;
  weights.config = config;
  weights.layers.resize(static_cast<size_t>(config.num_hidden_layers));
  if (config.num_nextn_predict_layers > 0) weights.mtp.emplace();
  weights.visit([](const TensorInfo&, Tensor&) {});  // makes the optional parts
  return weights;
}

Weights Weights::allocate(const Config& config, Device device) {
  Weights weights = describe(config);
  weights.visit([&](const TensorInfo& info, Tensor& tensor) {
    tensor = at::empty(stacked_shape(info),
                       at::device(device).dtype(info.stored_as == StoredAs::i64 ? at::kLong : at::kFloat));
  });
  return weights;
}

Weights Weights::to(Device device) const {
  Weights copy = *this;
  copy.visit([&](const TensorInfo&, Tensor& tensor) { tensor = tensor.to(device); });
  return copy;
}

Weights Weights::clone() const {
  Weights copy = *this;
  copy.visit([&](const TensorInfo&, Tensor& tensor) { tensor = tensor.detach().clone(); });
  return copy;
}

}  // namespace model
