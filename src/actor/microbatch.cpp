// Packing, the forward pass over a pack, and columns of per-token values.
#include "actor/microbatch.h"

#include <algorithm>

#include "data/packing.h"

namespace actor {

std::vector<Microbatch> pack_sequences(std::span<const Sequence> sequences, const std::vector<size_t>& chosen,
                                       int64_t token_budget) {
  std::vector<int64_t> lengths;
  for (const size_t i : chosen) lengths.push_back(sequences[i].num_inputs());
  std::vector<Microbatch> microbatches;
  for (const data::Microbatch& packed : data::pack_microbatches(lengths, token_budget, data::OverBudget::alone)) {
    Microbatch microbatch{{}, packed.num_tokens};
    for (const int64_t place : packed.samples) microbatch.members.push_back(chosen[static_cast<size_t>(place)]);
    microbatches.push_back(std::move(microbatch));
  }
  return microbatches;
}

namespace {

// From [position][layer][expert] of each sequence to [T, expert] of each layer. The indexer chooses as always.
model::Choices recorded_choices(const model::Config& config, std::span<const Sequence> sequences,
                                const Microbatch& microbatch, tensor::Device device) {
  const int64_t layers = config.num_hidden_layers, per_token = config.num_experts_per_tok;
  model::Choices choices;
  choices.experts = model::Choices::Mode::replay;
  for (int64_t layer = 0; layer < layers; ++layer) {
    Tensor chosen_TA = at::empty({microbatch.num_tokens, per_token}, at::kInt);
    int32_t* out = chosen_TA.mutable_data_ptr<int32_t>();
    for (const size_t i : microbatch.members) {
      const std::span<const uint16_t> experts = sequences[i].experts;
      CHECK(static_cast<int64_t>(experts.size()) == sequences[i].num_inputs() * layers * per_token);
      for (int64_t t = 0; t < sequences[i].num_inputs(); ++t) {
        out = std::copy_n(experts.begin() + (t * layers + layer) * per_token, per_token, out);
      }
    }
    choices.experts_TA.push_back(chosen_TA.to(device));
  }
  return choices;
}

}  // namespace

PolicyOutput policy_log_probs(const Policy& policy, std::span<const Sequence> sequences, const Microbatch& microbatch) {
  const tensor::Device device = policy.weights.embed.device();
  std::vector<model::Span> spans;
  std::vector<int64_t> ids, rows, targets;
  int64_t longest = 1;
  for (const size_t i : microbatch.members) {
    const Sequence& sequence = sequences[i];
    CHECK(sequence.prompt_len >= 1 && sequence.num_response() >= 1);
    for (int64_t t = 0; t < sequence.num_response(); ++t) {
      rows.push_back(static_cast<int64_t>(ids.size()) + sequence.prompt_len - 1 + t);
      targets.push_back(sequence.ids[static_cast<size_t>(sequence.prompt_len + t)]);
    }
    ids.insert(ids.end(), sequence.ids.begin(), sequence.ids.end() - 1);
    spans.push_back({0, sequence.num_inputs()});
    longest = std::max(longest, sequence.num_inputs());
  }
  const auto on_device = [&](const std::vector<int64_t>& values) { return at::tensor(values, at::kLong).to(device); };
  auto input = std::make_unique<PassInput>();
  input->layout = model::make_layout(policy.weights.config, spans);
  input->rope = model::RopeTables::make(policy.weights.config, longest, device);
  const bool replay = policy.routing_replay && !sequences[microbatch.members.front()].experts.empty();
  if (replay) input->choices = recorded_choices(policy.weights.config, sequences, microbatch, device);
  const Tensor streams_TMD = model::forward_streams({.weights = policy.weights,
                                                     .profile = policy.profile,
                                                     .layout = input->layout,
                                                     .rope = input->rope,
                                                     .ids_T = on_device(ids),
                                                     .choices = replay ? &input->choices : nullptr,
                                                     .recompute = policy.recompute});
  const Tensor hidden_ND =
      model::final_hidden(policy.weights, policy.profile, streams_TMD.index_select(0, on_device(rows)));
  const kernels::LogProbs values =
      kernels::chunked_log_probs(hidden_ND, policy.weights.head, on_device(targets), policy.head);
  return {values.log_prob_N, values.entropy_N, std::move(input)};
}

Tensor token_column(std::span<const Sequence> sequences, const Microbatch& microbatch, TokenField field,
                    tensor::Device device) {
  std::vector<float> values;
  for (const size_t i : microbatch.members) {
    const std::vector<float>& own = sequences[i].*field;
    CHECK(static_cast<int64_t>(own.size()) == sequences[i].num_response());
    values.insert(values.end(), own.begin(), own.end());
  }
  return at::tensor(values, at::kFloat).to(device);
}

Tensor sequence_column(std::span<const Sequence> sequences, const Microbatch& microbatch, double Sequence::*field,
                       tensor::Device device) {
  std::vector<double> values;
  for (const size_t i : microbatch.members) {
    values.insert(values.end(), static_cast<size_t>(sequences[i].num_response()), sequences[i].*field);
  }
  return at::tensor(values, at::kDouble).to(at::kFloat).to(device);
}

Tensor member_column(std::span<const Sequence> sequences, const Microbatch& microbatch, tensor::Device device) {
  std::vector<int64_t> places;
  for (size_t m = 0; m < microbatch.members.size(); ++m) {
    places.insert(places.end(), static_cast<size_t>(sequences[microbatch.members[m]].num_response()),
                  static_cast<int64_t>(m));
  }
  return at::tensor(places, at::kLong).to(device);
}

void store_column(const Tensor& column_N, const Microbatch& microbatch, TokenField field,
                  std::span<Sequence> sequences) {
  const Tensor host = column_N.detach().to(at::kCPU).to(at::kFloat).contiguous();
  const float* next = host.data_ptr<float>();
  for (const size_t i : microbatch.members) {
    const int64_t count = sequences[i].num_response();
    (sequences[i].*field).assign(next, next + count);
    next += count;
  }
  CHECK(next == host.data_ptr<float>() + host.numel());
}

}  // namespace actor
