// The whole loss, values and gradients, against vectors of the kinds policy_*, nonfinite, kl_loss, entropy and
// policy_total.
#include "actor/loss/objective.h"
#include "actor/loss/reduction.h"
#include "actor/rl_vectors.h"
#include "kernels/reference/log_prob.h"

namespace actor {
namespace {

using actor_test::flatten;
using actor_test::Json;
using actor_test::kLimitF32;
using actor_test::kLimitF64;
using actor_test::to_tensor;

LossSettings settings_of(const Json& inputs) {
  LossSettings settings;
  settings.clip_low = inputs["eps_clip"];
  settings.clip_high = inputs.value("eps_clip_high", settings.clip_low);
  settings.dual_clip = inputs.value("eps_clip_c", 0.0);
  settings.ratio = inputs.value("gspo", false) ? "sequence" : "token";
  settings.tis = inputs.contains("tis");
  if (settings.tis) {
    settings.tis_low = inputs["tis"][0];
    settings.tis_high = inputs["tis"][1];
    settings.tis_drop_outside = inputs.value("icepop", false);
  }
  settings.kl_type = inputs.value("kl_type", "k1");
  settings.kl_loss_coef = inputs.value("kl_loss_coef", 0.0);
  settings.unbiased_kl = inputs.value("unbiased_kl", false);
  settings.entropy_coef = inputs.value("entropy_coef", 0.0);
  return settings;
}

// Everything but the log-probs of the policy itself.
TokenTensors tokens_of(const Json& inputs, at::ScalarType dtype) {
  const std::string reduce = inputs.value("reduce", "sample");
  std::vector<SampleCount> counts;
  std::vector<int64_t> sample_of_token;
  std::vector<double> advantages;
  for (size_t j = 0; j < inputs["mask"].size(); ++j) {
    int64_t active = 0;
    for (size_t t = 0; t < inputs["mask"][j].size(); ++t) {
      active += inputs["mask"][j][t].get<int64_t>();
      sample_of_token.push_back(static_cast<int64_t>(j));
      const Json& advantage = inputs["adv"][j];
      advantages.push_back(actor_test::number(advantage.is_array() ? advantage[t] : advantage));
    }
    counts.push_back({active, reduce == "rollout" ? inputs["rollout"][j].get<int64_t>() : static_cast<int64_t>(j)});
  }
  const std::vector<double> weights = token_weights(counts, reduce == "token" ? Reduction::token : Reduction::sample);
  TokenTensors tokens;
  tokens.num_samples = static_cast<int64_t>(counts.size());
  tokens.sample_N = at::tensor(sample_of_token, at::kLong);
  tokens.weight_N = to_tensor(weights, at::kDouble).index_select(0, tokens.sample_N).to(dtype);
  tokens.active_N = to_tensor(inputs["mask"], at::kBool);
  tokens.advantage_N = to_tensor(advantages, dtype);
  if (inputs.contains("tis")) tokens.lp_rollout_N = to_tensor(inputs["lp_rollout"], dtype);
  if (inputs.contains("kl_type")) tokens.lp_ref_N = to_tensor(inputs["lp_ref"], dtype);
  return tokens;
}

void expect_parts(const Objective& got, const TokenTensors& tokens, const Json& want, double limit,
                  const std::string& id) {
  const auto scalar = [&](const Tensor& value, const char* name) {
    actor_test::expect_near(value, want[name], limit, 1, id + " " + name);
  };
  const auto per_token = [&](const Tensor& value, const char* name) {
    actor_test::expect_near(value, want[name], limit, 0, id + " " + name);
  };
  const auto reduced = [&](const Tensor& value_N) {
    return reduce_tokens(value_N.to(at::kDouble), tokens.weight_N.to(at::kDouble), tokens.active_N);
  };
  scalar(got.loss, "loss");
  scalar(got.policy_loss, "pg_loss");
  scalar(reduced(got.ppo_kl_N), "ppo_kl");
  scalar(reduced(got.clipped_N), "clipfrac");
  per_token(got.policy_N, "pg_token");
  per_token(got.ratio_N, "ratio");
  actor_test::expect_near(got.clipped_N, want["clipped"], 0, 0, id + " clipped");
  if (want.contains("is_weight")) per_token(got.tis_N, "is_weight");
  if (want.contains("kl_loss")) {
    scalar(got.kl_loss, "kl_loss");
    per_token(got.kl_N, "kl_token");
  }
  if (want.contains("entropy")) {
    scalar(got.entropy, "entropy");
    actor_test::expect_near(tokens.entropy_N, want["entropy_token"], limit, 1, id + " entropy_token");
  }
}

void check_given_log_probs(const std::string& kind, at::ScalarType dtype, double limit) {
  for (const auto& vector : actor_test::vectors_of(kind)) {
    TokenTensors tokens = tokens_of(vector.inputs, dtype);
    tokens.lp_new_N = to_tensor(vector.inputs["lp_new"], dtype).requires_grad_();
    tokens.lp_old_N =
        vector.inputs.contains("lp_old") ? to_tensor(vector.inputs["lp_old"], dtype) : tokens.lp_new_N.detach();
    const Objective objective = policy_objective(tokens, settings_of(vector.inputs));
    expect_parts(objective, tokens, vector.expected, limit, vector.id);
    objective.loss.backward();
    actor_test::expect_near(tokens.lp_new_N.grad(), vector.expected["grad_lp_new"], limit, 0, vector.id + " gradient");
  }
}

// From logits, through the chunked log-prob with a hidden size of N: row t of the identity picks row t of the logits.
void check_from_logits(const std::string& kind, at::ScalarType dtype, double limit) {
  for (const auto& vector : actor_test::vectors_of(kind)) {
    TokenTensors tokens = tokens_of(vector.inputs, dtype);
    std::vector<int64_t> targets;
    for (const double id : flatten(vector.inputs["tokens"])) targets.push_back(static_cast<int64_t>(id));
    const int64_t num_tokens = static_cast<int64_t>(targets.size());
    const Tensor logits = to_tensor(vector.inputs["logits"], dtype).view({num_tokens, -1}).requires_grad_();
    const kernels::LogProbs now =
        kernels::reference::chunked_log_probs(logits, at::eye(logits.size(1), logits.options()),
                                              at::tensor(targets, at::kLong), {vector.inputs["temperature"], {}, 2});
    actor_test::expect_near(now.log_prob_N, vector.expected["lp_new"], limit, 1, vector.id + " lp_new");
    tokens.lp_new_N = now.log_prob_N;
    tokens.entropy_N = now.entropy_N;
    tokens.lp_old_N =
        vector.inputs.contains("lp_old") ? to_tensor(vector.inputs["lp_old"], dtype) : now.log_prob_N.detach();
    const Objective objective = policy_objective(tokens, settings_of(vector.inputs));
    expect_parts(objective, tokens, vector.expected, limit, vector.id);
    objective.loss.backward();
    actor_test::expect_near(logits.grad(), vector.expected["grad_logits"], limit, 0, vector.id + " gradient");
  }
}

class PolicyVectors : public testing::TestWithParam<std::string> {};

TEST_P(PolicyVectors, AgreeInF64) { check_given_log_probs(GetParam(), at::kDouble, kLimitF64); }
TEST_P(PolicyVectors, AgreeInF32) { check_given_log_probs(GetParam(), at::kFloat, kLimitF32); }

INSTANTIATE_TEST_SUITE_P(Kinds, PolicyVectors,
                         testing::Values("policy_clip", "policy_dual_clip", "policy_gspo", "policy_tis", "nonfinite",
                                         "kl_loss"),
                         [](const auto& each) { return each.param; });

class LogitVectors : public testing::TestWithParam<std::string> {};

TEST_P(LogitVectors, AgreeInF64) { check_from_logits(GetParam(), at::kDouble, kLimitF64); }
TEST_P(LogitVectors, AgreeInF32) { check_from_logits(GetParam(), at::kFloat, kLimitF32); }

INSTANTIATE_TEST_SUITE_P(Kinds, LogitVectors, testing::Values("entropy", "policy_total"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace actor
