// Forward: one unit of work is a token and a group of its heads.
#include "kernels/cpu/attention.h"

#include <cstring>

#include "base/parallel.h"
#include "kernels/cpu/attention_keys.h"
#include "kernels/cpu/key_products.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/sink_softmax.h"

namespace kernels::cpu {
namespace {

constexpr int64_t kGrainMultiplyAdds = 1 << 19;  // about 20 microseconds

struct Workspace {
  std::vector<const float*> keys;
  Scratch query_KP, score_NP;
};

struct HeadGroup {
  int64_t token, first, count;
};

void attend_group(const AttentionInput& input, const HeadGroup& group, bool round_bf16, float* out_THK,
                  const AttentionStatistics& statistics, Workspace& work) {
  const int64_t dim = input.head_dim, width = padded_heads(group.count);
  const auto num_keys = static_cast<int64_t>(work.keys.size());
  const int64_t row = group.token * input.num_heads + group.first;
  float *const query = work.query_KP.floats(dim * width), *const score = work.score_NP.floats(num_keys * width);
  transpose_heads(input.query_THK + row * dim, group.count, dim, query);
  key_dots({query, work.keys.data(), num_keys, group.count, dim, input.scale, score, width});
  float max[kHeadGroup], total[kHeadGroup];
  exponentials({score, width, num_keys, group.count, input.sink_H + group.first}, max, total);
  float* const out = out_THK + row * dim;
  key_mix({score, width, work.keys.data(), num_keys, group.count, dim, out});
  divide_heads(total, group.count, dim, round_bf16, out);
  if (statistics.max == nullptr) return;
  std::copy_n(max, group.count, statistics.max + row);
  std::copy_n(total, group.count, statistics.total + row);
}

}  // namespace

void attend(const AttentionInput& input, bool round_bf16, float* out_THK, const AttentionStatistics& statistics) {
  const int64_t groups = (input.num_heads + kHeadGroup - 1) / kHeadGroup;
  const int64_t heads = std::min(input.num_heads, kHeadGroup);
  const int64_t cost = std::max<int64_t>(1, 2 * max_keys(input) * padded_heads(heads) * input.head_dim);
  const int64_t grain = std::max<int64_t>(1, kGrainMultiplyAdds / cost);
  base::parallel_for(input.num_tokens * groups, grain, [&](int64_t begin, int64_t end) {
    thread_local Workspace work;
    for (int64_t unit = begin, token = -1; unit < end; ++unit) {
      if (unit / groups != token) {
        token = unit / groups;
        collect_keys(input, token, work.keys);
      }
      const int64_t first = unit % groups * kHeadGroup;
      const HeadGroup group{token, first, std::min(kHeadGroup, input.num_heads - first)};
      attend_group(input, group, round_bf16, out_THK, statistics, work);
    }
  });
}

void keep_window(const float* kv_TK, std::span<const AttentionSpan> spans, int64_t window, int64_t head_dim,
                 float* ring) {
  for (const AttentionSpan& span : spans) {
    for (int64_t i = std::max<int64_t>(0, span.count - window); i < span.count; ++i) {
      std::memcpy(ring + (span.ring_row + (span.start + i) % window) * head_dim, kv_TK + (span.first + i) * head_dim,
                  static_cast<size_t>(head_dim) * sizeof(float));
    }
  }
}

}  // namespace kernels::cpu
