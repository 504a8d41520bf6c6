// Sequences packed into one forward pass, and the log-probs of their response tokens under some weights.
//
// Letters: T tokens of the pass, N response tokens of its sequences, in order of `members`.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "actor/sequence.h"
#include "kernels/log_prob.h"
#include "model/transformer.h"

namespace actor {

using tensor::Tensor;

struct Microbatch {
  std::vector<size_t> members;  // indices into the sequences that it was packed from
  int64_t num_tokens = 0;       // T
};

// The chosen sequences packed into passes of at most `token_budget` tokens; a longer sequence is a pass of its own. A
// pure function of the lengths (data/packing.h).
std::vector<Microbatch> pack_sequences(std::span<const Sequence> sequences, const std::vector<size_t>& chosen,
                                       int64_t token_budget);

// A policy to compute log-probs with. The weights stay owned by the caller.
struct Policy {
  const model::RunWeights& weights;
  model::Profile profile;
  bool recompute = false;
  bool routing_replay = false;  // with the experts of the sequences that have some
  kernels::LogProbOptions head;
};

// What backward with recompute reads again: keep it until then.
struct PassInput {
  model::Layout layout;
  model::RopeTables rope;
  model::Choices choices;  // to be replayed
};

struct PolicyOutput {
  Tensor log_prob_N, entropy_N;  // of each response token, on the device of the weights
  std::unique_ptr<PassInput> input;
};

// With gradient when gradients are on.
PolicyOutput policy_log_probs(const Policy& policy, std::span<const Sequence> sequences, const Microbatch& microbatch);

// A per-token column [N] from one value per token, or from one value per sequence; f32 on the device.
using TokenField = std::vector<float> Sequence::*;
Tensor token_column(std::span<const Sequence> sequences, const Microbatch& microbatch, TokenField field,
                    tensor::Device device);
Tensor sequence_column(std::span<const Sequence> sequences, const Microbatch& microbatch, double Sequence::*field,
                       tensor::Device device);
// int64 [N]: place of the token's sequence in `members`.
Tensor member_column(std::span<const Sequence> sequences, const Microbatch& microbatch, tensor::Device device);

// The inverse of token_column: writes a column back into its sequences.
void store_column(const Tensor& column_N, const Microbatch& microbatch, TokenField field,
                  std::span<Sequence> sequences);

}  // namespace actor
