// A side's forward pass over one sequence, a layer at a time, with every site observed; and the definition that it
// claims to follow, run from given streams.
//
// Letters: T tokens, M hc_mult, D hidden_size, V vocab.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compare/side.h"
#include "model/transformer.h"

namespace compare {

using tensor::Tensor;
using Sites = std::map<model::Site, Tensor>;  // in the order in which a layer computes them

struct LayerRecord {
  int64_t layer = 0;
  Tensor input_TMD;  // streams before the layer
  Sites sites;       // own memory

  const Tensor& output_TMD() const { return sites.at(model::Site::ffn_hc_post); }
};

// For one thread. No gradients.
class Forward {
 public:
  virtual ~Forward() = default;
  // What it says it computes with: config, parameters, roundings.
  virtual const model::RunWeights& weights() const = 0;
  virtual const model::Profile& profile() const = 0;
  virtual const Tensor& absent_V() const = 0;  // ids that it gives no probability; undefined: none
  virtual std::string path() const = 0;        // how it runs, for messages: "in one pass"

  // Begins a sequence; returns the streams before the first layer [T, M, D].
  virtual Tensor start(const Ids& ids) = 0;
  // Layers in order, each once, with the streams that the one before gave.
  virtual LayerRecord layer(int64_t layer, const Tensor& streams_TMD) = 0;
  virtual Tensor final_hidden(const Tensor& streams_TMD) = 0;
  virtual LogProbs log_probs(const Tensor& hidden_TD, double temperature) = 0;
};

// What Furlong's own sides do: the model over one span without a cache, as the actor runs it, or over a cache in chunks
// of the prompt, as the engine does.
class ModelForward : public Forward {
 public:
  // weights must outlive it. chunk: tokens of a pass over a cache; 0: one pass without one.
  ModelForward(const model::RunWeights& weights, const model::Profile& profile, Tensor absent_V, int64_t chunk);

  const model::RunWeights& weights() const override { return weights_; }
  const model::Profile& profile() const override { return profile_; }
  const Tensor& absent_V() const override { return absent_V_; }
  std::string path() const override;
  Tensor start(const Ids& ids) override;
  LayerRecord layer(int64_t layer, const Tensor& streams_TMD) override;
  Tensor final_hidden(const Tensor& streams_TMD) override;
  LogProbs log_probs(const Tensor& hidden_TD, double temperature) override;

 protected:
  const Ids& ids() const { return ids_; }

 private:
  struct Chunk {
    int64_t first = 0, count = 0;
    model::Layout layout;
    Tensor ids_T;
  };

  const model::RunWeights& weights_;
  model::Profile profile_;
  Tensor absent_V_;
  int64_t chunk_;
  Ids ids_;
  std::vector<Chunk> chunks_;
  model::RopeTables rope_;
  std::optional<model::Cache> cache_;
};

// Everything that decides what a pass without a cache over one sequence computes. Copies share tensors.
struct Definition {
  model::RunWeights weights;
  model::Profile profile;
  model::Layout layout;
  model::RopeTables rope;
  bool transpose_attn_comb = false, transpose_ffn_comb = false;  // not part of the model: what a broken one may do

  // As weights and profile say.
  static Definition of(const model::RunWeights& weights, const model::Profile& profile, int64_t num_tokens);
  void follow_config();  // layout and rope again from weights.config
};

// One layer as defined, from given streams.
LayerRecord run_layer(const Definition& definition, const Ids& ids, int64_t layer, const Tensor& streams_TMD);

}  // namespace compare
