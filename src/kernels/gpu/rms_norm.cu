// A block per row: its sum of squares, then its values, pairs and groups.
#include "kernels/gpu/rms_norm.h"

#include "kernels/gpu/row.h"

namespace kernels::gpu {
namespace {

constexpr int kLanes = 128;

struct Pair {
  float a, b;
};

// Pair p of row r, turned, each product rounded.
GPU_FUNCTION Pair turned(const cpu::Turn& turn, int64_t r, int64_t p, Pair pair) {
  const int64_t at = turn.position[r / turn.rows_per_token] * turn.pairs + p;
  const float c = turn.cos[at], s = turn.inverse ? -turn.sin[at] : turn.sin[at];
  return {pair.a * c - pair.b * s, pair.a * s + pair.b * c};
}

GPU_FUNCTION void norm_row(const Lanes& lanes, const cpu::NormRows& rows, int64_t r, float* to, RowMemory& memory) {
  const int64_t k = rows.k, plain = k - 2 * rows.turn.pairs;
  const float* x = rows.x + r * k;
  float* y = to + r * k;
  const float rinv = 1.0f / root(sum_of_squares(lanes, x, k, memory) / static_cast<float>(k) + rows.eps);
  const auto normed = [&](int64_t i) {
    const float u = x[i] * rinv;
    return round_if(rows.round_bf16, rows.weight != nullptr ? u * rows.weight[i] : u);
  };
  lanes.each([&](int lane) {
    for (int64_t i = lane; i < plain; i += lanes.count()) y[i] = normed(i);
    for (int64_t p = lane; p < rows.turn.pairs; p += lanes.count()) {
      const int64_t i = plain + 2 * p;
      const Pair pair = turned(rows.turn, r, p, {normed(i), normed(i + 1)});
      y[i] = round_if(rows.round_bf16, pair.a);
      y[i + 1] = round_if(rows.round_bf16, pair.b);
    }
  });
  if (rows.simulated > 0) simulate_row(lanes, y, y, {y, y, 1, plain, rows.simulated}, BlockFormat::e4m3);
}

GPU_KERNEL norm_kernel(cpu::NormRows rows, float* y) {
  const Lanes lanes;
  RowMemory& memory = shared_memory<RowMemory>();
  each_row(rows.rows, [&](int64_t r) { norm_row(lanes, rows, r, y, memory); });
}

GPU_KERNEL rotate_kernel(cpu::TurnedRows rows) {
  const Lanes lanes;
  const int64_t plain = rows.k - 2 * rows.turn.pairs;
  each_row(rows.rows, [&](int64_t r) {
    const float* x = rows.x + r * rows.k;
    float* y = rows.y + r * rows.k;
    lanes.each([&](int lane) {
      for (int64_t i = lane; i < plain; i += lanes.count()) y[i] = round_if(rows.round_bf16, x[i]);
      for (int64_t p = lane; p < rows.turn.pairs; p += lanes.count()) {
        const int64_t i = plain + 2 * p;
        const Pair pair = turned(rows.turn, r, p, {x[i], x[i + 1]});
        y[i] = round_if(rows.round_bf16, pair.a);
        y[i + 1] = round_if(rows.round_bf16, pair.b);
      }
    });
  });
}

}  // namespace

void rms_norm(const cpu::NormRows& rows, float* y, Queue queue) {
  check_sizes(rows.k >= 1 && rows.turn.pairs >= 0 && 2 * rows.turn.pairs <= rows.k && !rows.turn.inverse,
              "pairs, dims of a row", rows.turn.pairs, rows.k);
  launch("rms_norm", norm_kernel, {rows.rows, kLanes}, queue, rows, y);
}

void rotate(const cpu::TurnedRows& rows, Queue queue) {
  check_sizes(rows.turn.pairs >= 0 && 2 * rows.turn.pairs <= rows.k, "pairs, dims of a row", rows.turn.pairs, rows.k);
  launch("rotate", rotate_kernel, {rows.k > 0 ? rows.rows : 0, kLanes}, queue, rows);
}

}  // namespace kernels::gpu
