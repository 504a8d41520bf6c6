// Copy, turn and rounding of a row while it is in the cache.
#include "kernels/cpu/rope.h"

#include "base/check.h"
#include "base/parallel.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/rope_inl.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {
namespace {

template <bool kBf16>
HWY_INLINE void rotate_rows(const TurnedRows& rows, int64_t begin, int64_t end) {
  const int64_t plain = rows.k - 2 * rows.turn.pairs;
  for (int64_t r = begin; r < end; ++r) {
    const float* x = rows.x + r * rows.k;
    float* y = rows.y + r * rows.k;
    each_vector(plain,
                [&](int64_t i, auto access) HWY_ATTR { access.store(round_if<kBf16>(access.load(x + i)), y + i); });
    if (x != y) std::copy(x + plain, x + rows.k, y + plain);
    turn_pairs<kBf16>(rows.turn, r, y + plain);
  }
}

void rotate_range(const TurnedRows& rows, int64_t begin, int64_t end) {
  rows.round_bf16 ? rotate_rows<true>(rows, begin, end) : rotate_rows<false>(rows, begin, end);
}

}  // namespace
}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {
namespace {
HWY_EXPORT(rotate_range);
constexpr int64_t kGrain = 32768;  // values
}  // namespace

void rotate(const TurnedRows& rows) {
  CHECK(rows.turn.pairs >= 0 && 2 * rows.turn.pairs <= rows.k, "{} pairs of {} dims", rows.turn.pairs, rows.k);
  const auto run = HWY_DYNAMIC_DISPATCH(rotate_range);
  base::parallel_for(rows.rows, std::max<int64_t>(kGrain / std::max<int64_t>(rows.k, 1), 1),
                     [&](int64_t begin, int64_t end) { run(rows, begin, end); });
}

}  // namespace kernels::cpu
#endif
