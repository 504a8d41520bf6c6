// A block per row, which reads it twice: the highest logit, then the sums, a team to a block of 1024 ids.
#include "kernels/gpu/log_prob.h"

#include "kernels/gpu/row.h"

namespace kernels::gpu {
namespace {

constexpr int kLanes = 256, kTeams = kLanes / kTeam;
constexpr int64_t kVocabBlock = 1024;
constexpr float kLeast = -1000.0f;  // below it a weight is 0, and 0 times a finite value adds nothing

struct LogProbMemory {
  float total[kLanes], weighted[kLanes];
  float team_total[kTeams], team_weighted[kTeams];  // of the blocks at hand; first, the highest logits
  float sum_total, sum_weighted;
};

GPU_FUNCTION float logit_of(const LogitRows& rows, const float* logits, int64_t id) {
  return rows.absent != nullptr && rows.absent[id] ? -infinity() : logits[id];
}

// NaN where one of them is.
GPU_FUNCTION float higher(float a, float b) { return is_nan(a) || is_nan(b) ? not_a_number() : (a > b ? a : b); }

// The highest logit; NaN where the row holds a NaN.
GPU_FUNCTION float highest_logit(const Lanes& lanes, const LogitRows& rows, const float* logits,
                                 LogProbMemory& memory) {
  Per<float> highest(lanes);
  lanes.each([&](int lane) {
    float own = -infinity();
    for (int64_t id = lane; id < rows.vocab; id += lanes.count()) own = higher(own, logit_of(rows, logits, id));
    highest[lane] = own;
  });
  join_teams(lanes, highest, [](float a, float b) { return higher(a, b); });
  lanes.each([&](int lane) {
    if (lane % kTeam == 0) memory.team_total[lane / kTeam] = highest[lane];
  });
  lanes.each([&](int lane) {
    if (lane != 0) return;
    float all = memory.team_total[0];
    for (int team = 1; team < kTeams; ++team) all = higher(all, memory.team_total[team]);
    memory.sum_total = all;
  });
  return agree(lanes, memory.sum_total);
}

// What the blocks [first, first + kTeams) add, in lanes, then in order.
GPU_FUNCTION void add_blocks(const Lanes& lanes, const LogitRows& rows, const float* logits, float max, int64_t first,
                             LogProbMemory& memory) {
  lanes.each([&](int lane) {
    const int64_t begin = (first + lane / kTeam) * kVocabBlock, end = std::min(begin + kVocabBlock, rows.vocab);
    float total = 0, weighted = 0;
    for (int64_t id = begin + lane % kTeam; id < end; id += kTeam) {
      const float y = logit_of(rows, logits, id) / rows.temperature - max, weight = exponential(y);
      total = total + weight;
      weighted = fused(weight, y > kLeast ? y : kLeast, weighted);
    }
    memory.total[lane] = total;
    memory.weighted[lane] = weighted;
  });
  lanes.each([&](int lane) {
    if (lane % kTeam > 1) return;
    // Pointers: a choice between two arrays that is then indexed is compiled wrongly by g++ 12 with sanitizers.
    const float* const parts = lane % kTeam == 0 ? memory.total : memory.weighted;
    float* const sums = lane % kTeam == 0 ? memory.team_total : memory.team_weighted;
    float sum = 0;
    for (int i = 0; i < kTeam; ++i) sum = sum + parts[lane / kTeam * kTeam + i];
    sums[lane / kTeam] = sum;
  });
  lanes.each([&](int lane) {
    if (lane > 1) return;
    const float* parts = lane == 0 ? memory.team_total : memory.team_weighted;
    float& sum = lane == 0 ? memory.sum_total : memory.sum_weighted;
    for (int team = 0; team < kTeams; ++team) sum = sum + parts[team];  // zero beyond the last block
  });
}

GPU_FUNCTION void log_prob_row(const Lanes& lanes, const LogitRows& rows, int64_t n, const LogProbRows& to,
                               LogProbMemory& memory) {
  const float* logits = rows.logits + n * rows.vocab;
  const float max = highest_logit(lanes, rows, logits, memory) / rows.temperature;
  const bool finite = magnitude(max) < infinity();
  lanes.each([&](int lane) {
    if (lane == 0) memory.sum_total = memory.sum_weighted = 0;
  });
  const int64_t blocks = finite ? (rows.vocab + kVocabBlock - 1) / kVocabBlock : 0;
  for (int64_t first = 0; first < blocks; first += kTeams) add_blocks(lanes, rows, logits, max, first, memory);
  lanes.each([&](int lane) {
    if (lane != 0) return;
    const int64_t target = rows.targets[n];
    const bool known = finite && target >= 0 && target < rows.vocab;
    const float log_sum = finite ? logarithm(memory.sum_total) : not_a_number();
    to.log_prob[n] = known ? (logit_of(rows, logits, target) / rows.temperature - max) - log_sum : not_a_number();
    to.entropy[n] = finite ? log_sum - memory.sum_weighted / memory.sum_total : not_a_number();
  });
}

GPU_KERNEL log_prob_kernel(LogitRows rows, LogProbRows to) {
  const Lanes lanes;
  LogProbMemory& memory = shared_memory<LogProbMemory>();
  each_row(rows.rows, [&](int64_t n) { log_prob_row(lanes, rows, n, to, memory); });
}

}  // namespace

void log_probs(const LogitRows& rows, const LogProbRows& to, Queue queue) {
  check_sizes(rows.vocab >= 1 && rows.temperature > 0, "ids, temperature above 0", rows.vocab, rows.temperature > 0);
  launch("log_probs", log_prob_kernel, {rows.rows, kLanes}, queue, rows, to);
}

}  // namespace kernels::gpu
