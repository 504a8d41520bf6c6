// A block per token, A rounds of the highest key that is left. A key is a score and an id in one integer, so that its
// order is that of the ties rule.
#include "kernels/gpu/router.h"

#include "kernels/gpu/row.h"

namespace kernels::gpu {
namespace {

using cpu::RouterInput;
using cpu::Scoring;

constexpr int kLanes = 128;
constexpr int kMostChosen = static_cast<int>(cpu::kMostChosen);
static_assert(kMostChosen <= kLanes);

struct RouterMemory {
  float scores[kMostExperts];
  uint64_t keys[kMostExperts];
  float highest[kLanes / kTeam];  // of a team
  uint64_t best[kLanes / kTeam];  // of a team
  int32_t chosen[kMostChosen];
  float max, sum;  // of a softmax
};

// In the order of values (NaN above all, no -0: a sum with a score, which has none), then lower ids first. Never 0.
GPU_FUNCTION uint64_t key_of(float score, int32_t id) {
  const auto bits = std::bit_cast<uint32_t>(score);
  const uint32_t order = is_nan(score) ? 0xffffffffu : bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(order) << 32 | (0xffffffffu - static_cast<uint32_t>(id));
}
GPU_FUNCTION int32_t id_of(uint64_t key) { return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(key)); }

// The highest logit of a row and the sum of exp(logit - highest) by ascending expert, in `memory`, for a softmax. A NaN
// in the row makes the sum NaN.
GPU_FUNCTION void sum_exponentials(const Lanes& lanes, const float* logits, int64_t experts, RouterMemory& memory) {
  Per<float> highest(lanes);
  lanes.each([&](int lane) {
    float max = -infinity();
    for (int64_t e = lane; e < experts; e += lanes.count()) max = logits[e] > max ? logits[e] : max;
    highest[lane] = max;
  });
  join_teams(lanes, highest, [](float a, float b) { return a > b ? a : b; });
  lanes.each([&](int lane) {
    if (lane % kTeam == 0) memory.highest[lane / kTeam] = highest[lane];
  });
  lanes.each([&](int lane) {
    if (lane != 0) return;
    float max = memory.highest[0];
    for (int team = 1; team < lanes.count() / kTeam; ++team)
      max = memory.highest[team] > max ? memory.highest[team] : max;
    memory.max = max;
  });
  lanes.each([&](int lane) {
    for (int64_t e = lane; e < experts; e += lanes.count()) memory.scores[e] = exponential(logits[e] - memory.max);
  });
  lanes.each([&](int lane) {
    if (lane != 0) return;
    float sum = 0;
    for (int64_t e = 0; e < experts; ++e) sum = sum + memory.scores[e];
    memory.sum = sum;
  });
}

GPU_FUNCTION float score_of(float logit, Scoring scoring, const RouterMemory& memory) {
  if (scoring == Scoring::sqrtsoftplus) return sqrt_softplus(logit);
  if (scoring == Scoring::sigmoid) return router_sigmoid(logit);
  return exponential(logit - memory.max) / memory.sum;
}

// memory.chosen[a] = the best expert that is left, which then is not left any more.
GPU_FUNCTION void choose_one(const Lanes& lanes, int64_t experts, int64_t a, RouterMemory& memory) {
  Per<uint64_t> best(lanes);
  lanes.each([&](int lane) {
    uint64_t own = 0;
    for (int64_t e = lane; e < experts; e += lanes.count()) own = std::max(own, memory.keys[e]);
    best[lane] = own;
  });
  join_teams(lanes, best, [](uint64_t x, uint64_t y) { return x > y ? x : y; });
  lanes.each([&](int lane) {
    if (lane % kTeam == 0) memory.best[lane / kTeam] = best[lane];
  });
  lanes.each([&](int lane) {
    if (lane != 0) return;
    uint64_t winner = 0;
    for (int team = 0; team < lanes.count() / kTeam; ++team) winner = std::max(winner, memory.best[team]);
    memory.chosen[a] = id_of(winner);
    memory.keys[id_of(winner)] = 0;
  });
}

GPU_FUNCTION void best_of_row(const Lanes& lanes, const RouterInput& input, int64_t t, const float* bias,
                              int32_t* expert, RouterMemory& memory) {
  const float* logits = input.logits + t * input.experts;
  if (input.scoring == Scoring::softmax) sum_exponentials(lanes, logits, input.experts, memory);
  lanes.each([&](int lane) {
    for (int64_t e = lane; e < input.experts; e += lanes.count()) {
      memory.keys[e] = key_of(score_of(logits[e], input.scoring, memory) + bias[e], static_cast<int32_t>(e));
    }
  });
  for (int64_t a = 0; a < input.per_token; ++a) choose_one(lanes, input.experts, a, memory);
  lanes.each([&](int lane) {
    if (lane >= input.per_token) return;
    int64_t place = 0;
    for (int64_t a = 0; a < input.per_token; ++a) place += memory.chosen[a] < memory.chosen[lane] ? 1 : 0;
    expert[t * input.per_token + place] = memory.chosen[lane];
  });
}

GPU_FUNCTION void weights_of_row(const Lanes& lanes, const RouterInput& input, int64_t t, const int32_t* expert,
                                 float* weight, RouterMemory& memory) {
  const float* logits = input.logits + t * input.experts;
  const bool softmax = input.scoring == Scoring::softmax, normalise = input.normalise && !softmax;
  if (softmax) sum_exponentials(lanes, logits, input.experts, memory);
  lanes.each([&](int lane) {
    if (lane >= input.per_token) return;
    const int32_t e = expert[t * input.per_token + lane];
    memory.scores[lane] = e >= 0 && e < input.experts ? score_of(logits[e], input.scoring, memory) : not_a_number();
  });
  lanes.each([&](int lane) {
    if (lane >= input.per_token) return;
    float divisor = normalise ? 0.0f : 1.0f;  // each lane adds the few scores itself, in one order
    for (int64_t a = 0; normalise && a < input.per_token; ++a) divisor = divisor + memory.scores[a];
    weight[t * input.per_token + lane] = memory.scores[lane] / divisor * input.factor;
  });
}

GPU_KERNEL best_kernel(RouterInput input, const float* bias, int32_t* expert) {
  const Lanes lanes;
  RouterMemory& memory = shared_memory<RouterMemory>();
  each_row(input.tokens, [&](int64_t t) { best_of_row(lanes, input, t, bias, expert, memory); });
}

GPU_KERNEL weight_kernel(RouterInput input, const int32_t* expert, float* weight) {
  const Lanes lanes;
  RouterMemory& memory = shared_memory<RouterMemory>();
  each_row(input.tokens, [&](int64_t t) { weights_of_row(lanes, input, t, expert, weight, memory); });
}

void check(const RouterInput& input) {
  check_sizes(input.per_token >= 1 && input.per_token <= std::min<int64_t>(kMostChosen, input.experts),
              "experts per token, experts", input.per_token, input.experts);
  check_sizes(input.experts <= kMostExperts, "experts, room for", input.experts, kMostExperts);
}

}  // namespace

void best_experts(const RouterInput& input, const float* bias, int32_t* expert, Queue queue) {
  check(input);
  launch("best_experts", best_kernel, {input.tokens, kLanes}, queue, input, bias, expert);
}

void expert_weights(const RouterInput& input, const int32_t* expert, float* weight, Queue queue) {
  check(input);
  launch("expert_weights", weight_kernel, {input.tokens, kLanes}, queue, input, expert, weight);
}

}  // namespace kernels::gpu
