// Training steps.
#include "actor/actor.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "actor/loss/objective.h"
#include "actor/loss/reduction.h"
#include "actor/optimizer/grad_clip.h"
#include "metrics/names.h"

namespace actor {

// Counts tokens as they are computed.
class Actor::Ticker {
 public:
  Ticker(const Progress& progress, int64_t total) : progress_(progress), total_(total) {}
  void add(int64_t tokens) {
    done_ += tokens;
    if (progress_) progress_(done_, total_);
  }

 private:
  const Progress& progress_;
  int64_t total_, done_ = 0;
};

namespace {

int64_t tokens_of(const std::vector<Microbatch>& packs) {
  int64_t tokens = 0;
  for (const Microbatch& pack : packs) tokens += pack.num_tokens;
  return tokens;
}

// Weights of the tokens of a minibatch by its totals.
void set_weights(const std::vector<size_t>& samples, const LossSettings& settings, std::vector<Sequence>& sequences) {
  std::vector<SampleCount> counts;
  for (const size_t i : samples) {
    counts.push_back({sequences[i].active ? sequences[i].num_response() : 0, static_cast<int64_t>(i)});
  }
  const std::vector<double> weights = token_weights(counts, parse_reduction(settings.reduction), settings.max_tokens);
  for (size_t j = 0; j < samples.size(); ++j) sequences[samples[j]].weight = weights[j];
}

std::vector<size_t> active_ones(const std::vector<Sequence>& sequences) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].active) chosen.push_back(i);
  }
  return chosen;
}

// Without the ids at the end that have no token.
int64_t vocab_with_tokens(std::span<const int32_t> ids_without_token, int64_t vocab) {
  const std::set<int32_t> absent(ids_without_token.begin(), ids_without_token.end());
  while (vocab > 0 && absent.contains(static_cast<int32_t>(vocab - 1))) --vocab;
  return vocab;
}

ActorSettings checked(ActorSettings settings) {
  settings.check();
  return settings;
}

void put(Metrics& metrics, std::string_view name, double value) { metrics[std::string(name)] = value; }

std::optional<double> find(const Metrics& metrics, std::string_view name) {
  const auto at = metrics.find(std::string(name));
  return at == metrics.end() ? std::nullopt : std::optional<double>(at->second);
}

}  // namespace

Actor::Actor(ActorSettings settings, model::Weights masters, std::span<const int32_t> ids_without_token)
    : settings_(checked(std::move(settings))),
      profile_(settings_.precision()),
      masters_(masters.to(tensor::Device(settings_.device))),
      absent_V_(kernels::absent_mask({ids_without_token.begin(), ids_without_token.end()}, masters_.config.vocab_size,
                                     masters_.embed.device())),
      vocab_(vocab_with_tokens(ids_without_token, masters_.config.vocab_size)),
      optimizer_(settings_.optimizer.adamw),
      stop_rules_(settings_.stop) {
  masters_.visit([&](const model::TensorInfo& info, Tensor& master) {
    master = master.detach().contiguous();
    if (info.learns) optimizer_.add(info.name, master, info.decays);
  });
  refresh_run_weights();
  if (settings_.loss.needs_reference()) {
    reference_ = masters_.clone();
    reference_run_ = model::RunWeights::frozen(*reference_, profile_);
  }
}

void Actor::clear_gradients() {
  for (Tensor& leaf : leaves_) leaf.mutable_grad() = Tensor();
}

void Actor::refresh_run_weights() {
  leaves_.clear();
  run_ = {};  // the old ones go before the new ones come
  run_ = model::RunWeights::trainable(masters_, profile_);
  run_.visit_leaves([&](const model::TensorInfo& info, Tensor& leaf) {
    if (info.learns) leaves_.push_back(leaf.requires_grad_());
  });
}

Policy Actor::policy_of(const model::RunWeights& weights, double temperature, bool recompute) const {
  return {weights, profile_, recompute, settings_.routing_replay, {temperature, absent_V_, settings_.head_rows}};
}

std::vector<Actor::Minibatch> Actor::plan(std::vector<Sequence>& sequences, size_t num_groups) const {
  const size_t count = static_cast<size_t>(settings_.num_minibatches);
  std::vector<Minibatch> minibatches;
  for (size_t m = 0; m < count; ++m) {
    const size_t first = num_groups * m / count, last = num_groups * (m + 1) / count;
    Minibatch minibatch;
    std::vector<size_t> active;
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (sequences[i].group < first || sequences[i].group >= last) continue;
      minibatch.samples.push_back(i);
      if (sequences[i].active) active.push_back(i);
    }
    if (active.empty()) continue;  // nothing to learn from: no update, and none is counted as skipped
    set_weights(minibatch.samples, settings_.loss, sequences);
    minibatch.packs = pack_sequences(sequences, active, settings_.tokens_per_microbatch);
    minibatches.push_back(std::move(minibatch));
  }
  return minibatches;
}

void Actor::fill_log_probs(const Policy& policy, const std::vector<Microbatch>& packs, TokenField field,
                           std::vector<Sequence>& sequences, Ticker& ticker) const {
  at::NoGradGuard no_grad;
  for (const Microbatch& pack : packs) {
    store_column(policy_log_probs(policy, sequences, pack).log_prob_N, pack, field, sequences);
    ticker.add(pack.num_tokens);
  }
}

// What needs a pass of its own for lp_old before training. Exact sequences have it from the rollout. With KL in the
// reward masked answers need it too: they take part in the statistics of their group.
std::vector<Microbatch> Actor::old_packs(const std::vector<Minibatch>& minibatches,
                                         std::vector<Sequence>& sequences) const {
  if (!has_old_pass()) return {};
  for (Sequence& sequence : sequences) {
    if (sequence.exact) sequence.lp_old = sequence.lp_rollout;
  }
  std::vector<size_t> chosen;
  for (const Minibatch& minibatch : minibatches) {
    for (const size_t i : minibatch.samples) {
      const bool needed = sequences[i].active || settings_.loss.kl_reward_coef > 0;
      if (needed && !sequences[i].exact && sequences[i].num_response() > 0) chosen.push_back(i);
    }
  }
  return pack_sequences(sequences, chosen, settings_.tokens_per_microbatch);
}

std::vector<Microbatch> Actor::reference_packs(const std::vector<Minibatch>& minibatches,
                                               const std::vector<Sequence>& sequences) const {
  std::vector<size_t> chosen;
  for (const Minibatch& minibatch : minibatches) {
    for (const size_t i : minibatch.samples) {
      const bool needed = sequences[i].active || settings_.loss.kl_reward_coef > 0;
      if (reference_ && needed && sequences[i].num_response() > 0) chosen.push_back(i);
    }
  }
  return pack_sequences(sequences, chosen, settings_.tokens_per_microbatch);
}

void Actor::accumulate(const Policy& policy, const Microbatch& pack, std::vector<Sequence>& sequences, StepSums& sums) {
  const tensor::Device device = masters_.embed.device();
  const PolicyOutput now = policy_log_probs(policy, sequences, pack);
  if (!has_old_pass()) store_column(now.log_prob_N, pack, &Sequence::lp_old, sequences);
  TokenTensors tokens;
  tokens.lp_new_N = now.log_prob_N;
  tokens.lp_old_N = token_column(sequences, pack, &Sequence::lp_old, device);
  tokens.lp_rollout_N = token_column(sequences, pack, &Sequence::lp_rollout, device);
  if (settings_.loss.kl_loss_coef > 0) tokens.lp_ref_N = token_column(sequences, pack, &Sequence::lp_ref, device);
  tokens.entropy_N = settings_.loss.entropy_coef > 0 ? now.entropy_N : now.entropy_N.detach();
  tokens.active_N = at::ones_like(now.log_prob_N, at::kBool);  // packs hold active sequences only
  tokens.weight_N = sequence_column(sequences, pack, &Sequence::weight, device);
  tokens.advantage_N = sequence_column(sequences, pack, &Sequence::advantage, device);
  tokens.sample_N = member_column(sequences, pack, device);
  tokens.num_samples = static_cast<int64_t>(pack.members.size());
  const Objective objective = policy_objective(tokens, settings_.loss);
  sums.add(objective, tokens, settings_.loss);
  objective.loss.backward();
}

Actor::Update Actor::apply_update() {
  std::vector<Tensor> grads;
  for (const Tensor& leaf : leaves_) grads.push_back(leaf.grad());  // as the optimizer's tensors but for views
  Update update{global_norm(grads), learning_rate(settings_.optimizer.schedule, updates_), false};
  update.skipped = !std::isfinite(update.grad_norm);
  if (update.skipped) {
    clear_gradients();
    return update;
  }
  optimizer_.step(grads, update.lr, clip_factor(update.grad_norm, settings_.optimizer.max_grad_norm));
  ++updates_;
  grads.clear();
  refresh_run_weights();
  return update;
}

StepReport Actor::train(int64_t step, const TrainBatch& batch, const Progress& progress) {
  check_temperature(batch.temperature);
  const model::Config& config = masters_.config;
  const int64_t experts = settings_.routing_replay ? config.num_hidden_layers * config.num_experts_per_tok : 0;
  std::vector<Sequence> sequences = sequences_of(batch.groups, settings_.loss, {vocab_, batch.exact_version, experts});
  const std::vector<Minibatch> minibatches = plan(sequences, batch.groups.size());
  const std::vector<Microbatch> old = old_packs(minibatches, sequences),
                                reference = reference_packs(minibatches, sequences);
  int64_t tokens = tokens_of(old) + tokens_of(reference);
  for (const Minibatch& minibatch : minibatches) tokens += settings_.epochs * tokens_of(minibatch.packs);
  Ticker ticker(progress, tokens);
  clear_gradients();  // of a call that was abandoned

  const double start_s = clock_.now_s();
  fill_log_probs(policy_of(run_, batch.temperature, false), old, &Sequence::lp_old, sequences, ticker);
  if (reference_run_) {
    fill_log_probs(policy_of(*reference_run_, batch.temperature, false), reference, &Sequence::lp_ref, sequences,
                   ticker);
  }
  set_advantages(batch.groups, settings_.loss, sequences);
  const double train_s = clock_.now_s();
  StepSums sums;
  for (int64_t epoch = 0; epoch < settings_.epochs; ++epoch) {
    for (const Minibatch& minibatch : minibatches) {
      for (const Microbatch& pack : minibatch.packs) {
        accumulate(policy_of(run_, batch.temperature, settings_.recompute), pack, sequences, sums);
        ticker.add(pack.num_tokens);
      }
      const Update update = apply_update();
      sums.add_update(update.grad_norm, update.lr, update.skipped);
    }
  }
  StepReport report = report_of(step, batch, sequences, sums);
  if (!old.empty() || !reference.empty()) put(report.metrics, metrics::kTimeLogProb, train_s - start_s);
  put(report.metrics, metrics::kTimeTrain, clock_.now_s() - train_s);
  return report;
}

StepReport Actor::report_of(int64_t step, const TrainBatch& batch, const std::vector<Sequence>& sequences,
                            const StepSums& sums) {
  StepReport report;
  Gap gap;
  for (const Sequence& sequence : sequences) {
    if (sequence.active) gap.add(sequence.lp_old, sequence.lp_rollout);
  }
  gap.report(report.metrics);
  sums.report(report.metrics);
  add_sample_metrics(batch.groups, report.metrics);
  report.stop = stop_rules_.observe(step, {sums.updates(), sums.skipped(), find(report.metrics, metrics::kGapMean),
                                           find(report.metrics, metrics::kRewardMean)});
  return report;
}

StepReport Actor::train_sft(int64_t step, std::span<const SftExample> examples, const Progress& progress) {
  StepReport report;
  const std::vector<Sequence> sequences = sequences_of(examples, vocab_);
  if (sequences.empty()) return report;
  const std::vector<Microbatch> packs =
      pack_sequences(sequences, active_ones(sequences), settings_.tokens_per_microbatch);
  Ticker ticker(progress, tokens_of(packs));
  clear_gradients();
  const double start_s = clock_.now_s();
  double total = 0;
  for (const Microbatch& pack : packs) {
    const PolicyOutput now = policy_log_probs(policy_of(run_, 1, settings_.recompute), sequences, pack);
    const Tensor weight_N = sequence_column(sequences, pack, &Sequence::weight, masters_.embed.device());
    const Tensor loss = sft_objective(now.log_prob_N, weight_N, at::ones_like(weight_N, at::kBool));
    total += loss.item<double>();
    loss.backward();
    ticker.add(pack.num_tokens);
  }
  const Update update = apply_update();
  put(report.metrics, metrics::kLossSft, total);
  put(report.metrics, metrics::kPolicyLearningRate, update.lr);
  put(report.metrics, metrics::kPolicySkipped, update.skipped ? 1 : 0);
  if (!update.skipped) put(report.metrics, metrics::kPolicyGradNorm, update.grad_norm);
  put(report.metrics, metrics::kTimeTrain, clock_.now_s() - start_s);
  report.stop = stop_rules_.observe(step, {1, update.skipped ? 1 : 0, std::nullopt, std::nullopt});
  return report;
}

std::vector<Scored> Actor::score(std::span<const ScoreRequest> requests, double temperature) const {
  check_temperature(temperature);
  std::vector<Sequence> sequences = sequences_of(requests, vocab_);
  at::NoGradGuard no_grad;
  for (const Microbatch& pack : pack_sequences(sequences, active_ones(sequences), settings_.tokens_per_microbatch)) {
    const PolicyOutput values = policy_log_probs(policy_of(run_, temperature, false), sequences, pack);
    store_column(values.log_prob_N, pack, &Sequence::lp_old, sequences);
    store_column(values.entropy_N, pack, &Sequence::entropy, sequences);
  }
  std::vector<Scored> scored;
  for (Sequence& sequence : sequences) scored.push_back({std::move(sequence.lp_old), std::move(sequence.entropy)});
  return scored;
}

}  // namespace actor
