// The parameters of a DeepSeek-V4 model and the one visitor over them. Loader, saver, optimizer, weight sync, memory
// planner and `furlong inspect` walk it: there is no second list of names. Names are DeepSeek's native ones (spec 7);
// other schemes are translations (checkpoint/names.h).
//
// Letters: D hidden_size, V vocab, R q_lora_rank, H heads, K head_dim, G o_groups, O o_lora_rank, C compressor channels
// (2K with overlap, else K), W tokens per block, J index heads, I index_head_dim, E experts, F moe_intermediate_size, A
// experts per token, M hc_mult.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/profile.h"
#include "tensor/tensor.h"

namespace model {

using tensor::Device;
using tensor::Tensor;

// Matrix is what products run on: a Tensor in the masters and in what is loaded, saved and published (Weights); packed
// panels in the weights of a forward pass (RunWeights). Everything else is a Tensor in both.

template <class Matrix>
struct HyperConnectionOf {
  Matrix fn;     // [(2+M)*M, M*D] f32; of the head [M, M*D]
  Tensor base;   // [(2+M)*M] f32; of the head [M]
  Tensor scale;  // [3] f32; of the head [1]
};

template <class Matrix>
struct CompressorWeightsOf {
  Tensor ape;    // [W, C] f32
  Matrix wkv;    // [C, D]
  Matrix wgate;  // [C, D]
  Tensor norm;   // [K]
};

template <class Matrix>
struct IndexerWeightsOf {
  Matrix wq_b;          // [J*I, R]
  Matrix weights_proj;  // [J, D]
  CompressorWeightsOf<Matrix> compressor;
};

template <class Matrix>
struct AttentionWeightsOf {
  Matrix wq_a;                                            // [R, D]
  Tensor q_norm;                                          // [R]
  Matrix wq_b;                                            // [H*K, R]
  Matrix wkv;                                             // [K, D]
  Tensor kv_norm;                                         // [K]
  Matrix wo_a;                                            // [G*O, H*K/G]; packed: a stack [G, O, H*K/G]
  Matrix wo_b;                                            // [D, G*O]
  Tensor attn_sink;                                       // [H] f32
  std::optional<CompressorWeightsOf<Matrix>> compressor;  // csa and hca layers
  std::optional<IndexerWeightsOf<Matrix>> indexer;        // csa layers
};

// Experts are stacked in memory; each is its own tensor in files and on the wire (ffn.experts.{e}.w1.weight).
template <class Matrix>
struct MoeWeightsOf {
  Matrix gate;                  // [E, D]
  Tensor bias;                  // [E] f32; undefined in hash layers
  Tensor tid2eid;               // [V, A] int64; undefined in score-routed layers
  Matrix w1, w3;                // [E, F, D] gate and up projections
  Matrix w2;                    // [E, D, F] down projection
  Matrix shared_w1, shared_w3;  // [F, D]
  Matrix shared_w2;             // [D, F]
};

template <class Matrix>
struct BlockWeightsOf {
  HyperConnectionOf<Matrix> hc_attn, hc_ffn;
  Tensor attn_norm, ffn_norm;  // [D]
  AttentionWeightsOf<Matrix> attn;
  MoeWeightsOf<Matrix> ffn;
};

template <class Matrix>
struct MtpWeightsOf {
  BlockWeightsOf<Matrix> block;
  Matrix e_proj, h_proj;      // [D, D]
  Tensor enorm, hnorm, norm;  // [D]
  HyperConnectionOf<Matrix> hc_head;
};

template <class Matrix>
struct TopWeightsOf {
  Config config;
  Tensor embed;  // [V, D]
  Matrix head;   // [V, D]
  Tensor norm;   // [D]
  HyperConnectionOf<Matrix> hc_head;
  std::vector<BlockWeightsOf<Matrix>> layers;
  std::optional<MtpWeightsOf<Matrix>> mtp;
};

// How the published checkpoint stores a tensor (spec 6.2).
enum class StoredAs { f32, bf16, e4m3_128x128, e2m1_1x32, i64 };

// Along which dim a tensor is cut under tensor parallelism; expert: whole experts are dealt out.
enum class ShardAxis { replicated, rows, columns, expert };

struct TensorInfo {
  std::string name;            // native name; of a stack "layers.3.ffn.experts.{}.w1.weight"
  std::vector<int64_t> shape;  // of one tensor (of one expert)
  StoredAs stored_as = StoredAs::bf16;
  ShardAxis shard = ShardAxis::replicated;
  bool learns = true;   // updated by the optimizer (not: gate, bias, tid2eid, indexer; decisions 11)
  bool decays = false;  // weight decay applies: matrices that learn, mHC parameters and ape excepted
  int64_t stack = 0;    // > 0: that many experts stacked along a leading dim
  int64_t groups = 0;   // > 0 (wo_a): the rows are this many matrices, multiplied with unquantised inputs (decisions 2)

  // The value that is published from a master: bf16 unless the tensor is stored f32 (decisions 4).
  bool published_f32() const { return stored_as == StoredAs::f32; }
  bool is_quantised() const { return stored_as == StoredAs::e4m3_128x128 || stored_as == StoredAs::e2m1_1x32; }
};

struct Weights : TopWeightsOf<Tensor> {
  // Each tensor of the struct once, in the order of the layers; experts as stacks.
  void visit(const std::function<void(const TensorInfo&, Tensor&)>& see);
  void visit(const std::function<void(const TensorInfo&, const Tensor&)>& see) const;
  // As visit, but each expert on its own, as a view into its stack, under its full name. This is what files and wires
  // hold.
  void visit_named(const std::function<void(const TensorInfo&, const Tensor&)>& see) const;

  // The structure with undefined tensors: what to load, without memory.
  static Weights describe(const Config& config);
  // Allocated f32 tensors (tid2eid: int64) on a device ("meta" costs no memory), values not set.
  static Weights allocate(const Config& config, Device device);
  // Random initial values, reproducible from the seed on every machine; see initialise.cpp for what each tensor gets.
  static Weights initialise(const Config& config, uint64_t seed);

  Weights to(Device device) const;
  Weights clone() const;  // own memory, no gradient history
};

// The value of a parameter as it is published: bf16 for tensors stored in bf16 or below, f32 otherwise, int64 for
// tid2eid.
Tensor published_value(const TensorInfo& info, const Tensor& master);

}  // namespace model
