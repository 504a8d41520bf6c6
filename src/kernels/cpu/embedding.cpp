// The gradient sorts tokens by id, so that each row of the table has one thread and one order.
#include "kernels/cpu/embedding.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/row_inl.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {
namespace {

// to [dim] += each of the `count` rows at `rows`.
void add_rows(const float* rows, int64_t count, int64_t dim, float* to) {
  each_vector(dim, [&](int64_t i, auto access) HWY_ATTR {
    V sum = access.load(to + i);
    for (int64_t r = 0; r < count; ++r) sum = hn::Add(sum, access.load(rows + r * dim + i));
    access.store(sum, to + i);
  });
}

}  // namespace
}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {
namespace {
HWY_EXPORT(add_rows);

constexpr int64_t kGrain = 32768;  // values

int64_t grain_of(int64_t values) { return std::max<int64_t>(kGrain / std::max<int64_t>(values, 1), 1); }

struct Occurrence {
  int64_t id, token;
  auto operator<=>(const Occurrence&) const = default;
};
}  // namespace

void embed(const Embedding& embedding, const float* table, float* out) {
  const int64_t *ids = embedding.ids, dim = embedding.dim, repeat = embedding.repeat;
  for (int64_t t = 0; t < embedding.tokens; ++t) {
    CHECK(ids[t] >= 0 && ids[t] < embedding.vocab, "id {} of {}", ids[t], embedding.vocab);
  }
  base::parallel_for(embedding.tokens, grain_of(repeat * dim), [&](int64_t begin, int64_t end) {
    float* to = out + begin * repeat * dim;
    for (int64_t t = begin; t < end; ++t) {
      const float* row = table + ids[t] * dim;
      for (int64_t r = 0; r < repeat; ++r) to = std::copy(row, row + dim, to);
    }
  });
}

void embed_backward(const Embedding& embedding, const float* dout, float* dtable) {
  const int64_t dim = embedding.dim, width = embedding.repeat * dim;
  std::vector<Occurrence> sorted;
  for (int64_t t = 0; t < embedding.tokens; ++t) sorted.push_back({embedding.ids[t], t});
  std::sort(sorted.begin(), sorted.end());
  std::vector<size_t> first;  // of each id among the sorted
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (i == 0 || sorted[i].id != sorted[i - 1].id) first.push_back(i);
  }
  first.push_back(sorted.size());
  base::parallel_for(embedding.vocab, grain_of(dim),
                     [&](int64_t begin, int64_t end) { std::fill(dtable + begin * dim, dtable + end * dim, 0.0f); });
  const auto add = HWY_DYNAMIC_DISPATCH(add_rows);
  base::parallel_for(static_cast<int64_t>(first.size()) - 1, grain_of(width), [&](int64_t begin, int64_t end) {
    for (size_t i = first[static_cast<size_t>(begin)]; i < first[static_cast<size_t>(end)]; ++i) {
      add(dout + sorted[i].token * width, embedding.repeat, dim, dtable + sorted[i].id * dim);
    }
  });
}

}  // namespace kernels::cpu
#endif
