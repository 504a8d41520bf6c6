// Packing, the forward pass over a pack, and columns of per-token values.
#include "actor/microbatch.h"

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

PolicyOutput policy_log_probs(const Policy& policy, std::span<const Sequence> sequences, const Microbatch& microbatch) {
  const tensor::Device device = policy.weights.embed.device();
  std::vector<model::Span> spans;
  std::vector<int64_t> ids, rows, targets;
  for (const size_t i : microbatch.members) {
    const Sequence& sequence = sequences[i];
    CHECK(sequence.prompt_len >= 1 && sequence.num_response() >= 1);
    for (int64_t t = 0; t < sequence.num_response(); ++t) {
      rows.push_back(static_cast<int64_t>(ids.size()) + sequence.prompt_len - 1 + t);
      targets.push_back(sequence.ids[static_cast<size_t>(sequence.prompt_len + t)]);
    }
    ids.insert(ids.end(), sequence.ids.begin(), sequence.ids.end() - 1);
    spans.push_back({0, sequence.num_inputs(), 0});
  }
  const auto on_device = [&](const std::vector<int64_t>& values) { return at::tensor(values, at::kLong).to(device); };
  auto layout =
      std::make_unique<const model::Layout>(model::Layout::build(policy.weights.config, std::move(spans), 0, device));
  const Tensor streams_TMD = model::forward_streams(
      {policy.weights, policy.profile, *layout, on_device(ids), nullptr, nullptr, policy.recompute});
  const Tensor hidden_ND =
      model::final_hidden(policy.weights, policy.profile, streams_TMD.index_select(0, on_device(rows)));
  const LogProbs values = chunked_log_probs(hidden_ND, policy.weights.head, on_device(targets), policy.head);
  return {values.log_prob_N, values.entropy_N, std::move(layout)};
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
