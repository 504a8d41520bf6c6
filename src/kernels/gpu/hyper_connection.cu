// A block per token. The small matrix of a token lies in shared memory, a lane to a row or column of it.
#include "kernels/gpu/hyper_connection.h"

#include "kernels/gpu/row.h"

namespace kernels::gpu {
namespace {

constexpr int kLanes = 256, kSinkhornLanes = 64;
constexpr int kMaxStreams = static_cast<int>(cpu::kMaxStreams), kMaxRows = (2 + kMaxStreams) * kMaxStreams;
static_assert(kMaxRows <= kLanes && kMaxStreams * kMaxStreams <= kSinkhornLanes);

struct HcMemory {
  RowMemory row;
  float pre[kMaxStreams];
  float comb[kMaxStreams * kMaxStreams];  // row j, column k at j * m + k
};

// A row of logits, by one lane: its softmax, plus eps.
GPU_FUNCTION void softmax_line(float* row, int m, float eps) {
  float highest = row[0], sum = 0;
  for (int k = 1; k < m; ++k) highest = row[k] > highest ? row[k] : highest;
  for (int k = 0; k < m; ++k) {
    row[k] = exponential(row[k] - highest);
    sum = sum + row[k];
  }
  const float reciprocal = 1.0f / sum;
  for (int k = 0; k < m; ++k) row[k] = row[k] * reciprocal + eps;
}

// m values `stride` apart, by one lane: times the reciprocal of their sum.
GPU_FUNCTION void normalise_line(float* line, int stride, int m, float eps) {
  float sum = line[0];
  for (int k = 1; k < m; ++k) sum = sum + line[k * stride];
  const float reciprocal = 1.0f / (sum + eps);
  for (int k = 0; k < m; ++k) line[k * stride] = line[k * stride] * reciprocal;
}

// Logits -> comb, in place, in shared memory.
GPU_FUNCTION void sinkhorn_matrix(const Lanes& lanes, float* comb, int m, int64_t iters, float eps) {
  lanes.each([&](int lane) {
    if (lane < m) softmax_line(comb + lane * m, m, eps);
  });
  const auto normalise_columns = [&](int lane) {
    if (lane < m) normalise_line(comb + lane, m, m, eps);
  };
  lanes.each(normalise_columns);
  for (int64_t i = 1; i < iters; ++i) {
    lanes.each([&](int lane) {
      if (lane < m) normalise_line(comb + lane * m, 1, m, eps);
    });
    lanes.each(normalise_columns);
  }
}

GPU_FUNCTION void gates(const Lanes& lanes, const cpu::HcPre& hc, const float* raw, float rinv,
                        const cpu::HcPreResult& to, int64_t t, HcMemory& memory) {
  const int m = static_cast<int>(hc.num_streams), rows = hc.head ? m : (2 + m) * m;
  lanes.each([&](int x) {
    if (x >= rows) return;
    const int part = x / m < 2 ? x / m : 2;
    const float logit = fused(raw[x] * rinv, hc.scale[part], hc.base[x]);
    if (part == 0) memory.pre[x] = gate_sigmoid(logit) + hc.hc_eps;
    if (part == 1) to.post[t * m + x - m] = 2.0f * gate_sigmoid(logit);
    if (part == 2) memory.comb[x - 2 * m] = logit;
  });
}

GPU_FUNCTION void pre_token(const Lanes& lanes, const cpu::HcPre& hc, const float* raw_TX, const cpu::HcPreResult& to,
                            int64_t t, HcMemory& memory) {
  const int m = static_cast<int>(hc.num_streams), rows = hc.head ? m : (2 + m) * m;
  const int64_t d = hc.dim, width = m * d;
  const float* x = hc.streams + t * width;
  const float squares = sum_of_squares(lanes, x, width, memory.row);
  const float rinv = 1.0f / root(squares / static_cast<float>(width) + hc.norm_eps);
  gates(lanes, hc, raw_TX + t * rows, rinv, to, t, memory);
  if (!hc.head) {
    sinkhorn_matrix(lanes, memory.comb, m, hc.sinkhorn_iters, hc.hc_eps);
    lanes.each([&](int lane) {
      if (lane < m * m) to.comb[t * m * m + lane] = memory.comb[lane];
    });
  }
  lanes.each([&](int lane) {
    for (int64_t i = lane; i < d; i += lanes.count()) {
      float sum = memory.pre[0] * x[i];
      for (int s = 1; s < m; ++s) sum = fused(memory.pre[s], x[s * d + i], sum);
      to.input[t * d + i] = round_if(to.round_bf16, sum);
    }
  });
}

GPU_KERNEL pre_kernel(cpu::HcPre hc, const float* raw_TX, cpu::HcPreResult to) {
  const Lanes lanes;
  HcMemory& memory = shared_memory<HcMemory>();
  each_row(hc.tokens, [&](int64_t t) { pre_token(lanes, hc, raw_TX, to, t, memory); });
}

GPU_KERNEL post_kernel(cpu::HcPost hc, bool round_bf16, float* result_TMD) {
  const Lanes lanes;
  const int64_t m = hc.num_streams, d = hc.dim;
  each_row(hc.tokens, [&](int64_t t) {
    const float *f = hc.output + t * d, *x = hc.streams + t * m * d;
    const float *post = hc.post + t * m, *comb = hc.comb + t * m * m;
    float* y = result_TMD + t * m * d;
    lanes.each([&](int lane) {
      for (int64_t at = lane; at < d; at += lanes.count()) {
        for (int64_t j = 0; j < m; ++j) {
          float sum = post[j] * f[at];
          for (int64_t i = 0; i < m; ++i) sum = fused(comb[i * m + j], x[i * d + at], sum);
          y[j * d + at] = round_if(round_bf16, sum);
        }
      }
    });
  });
}

GPU_KERNEL sinkhorn_kernel(cpu::Sinkhorn step, float* comb_TMM) {
  const Lanes lanes;
  HcMemory& memory = shared_memory<HcMemory>();
  const int m = static_cast<int>(step.num_streams), size = m * m;
  each_row(step.tokens, [&](int64_t t) {
    lanes.each([&](int lane) {
      if (lane < size) memory.comb[lane] = step.logits[t * size + lane];
    });
    sinkhorn_matrix(lanes, memory.comb, m, step.iters, step.eps);
    lanes.each([&](int lane) {
      if (lane < size) comb_TMM[t * size + lane] = memory.comb[lane];
    });
  });
}

}  // namespace

void hc_pre(const cpu::HcPre& pre, const float* raw_TX, const cpu::HcPreResult& result, Queue queue) {
  check_sizes(pre.num_streams >= 1 && pre.num_streams <= kMaxStreams && pre.dim >= 1, "streams, dim", pre.num_streams,
              pre.dim);
  const bool gates = result.post != nullptr && result.comb != nullptr;
  check_sizes(pre.head || (pre.sinkhorn_iters >= 1 && (gates || pre.tokens == 0)), "iterations, post and comb given",
              pre.sinkhorn_iters, gates);
  launch("hc_pre", pre_kernel, {pre.tokens, kLanes}, queue, pre, raw_TX, result);
}

void hc_post(const cpu::HcPost& post, bool round_bf16, float* result_TMD, Queue queue) {
  check_sizes(post.num_streams >= 1 && post.dim >= 0, "streams, dim", post.num_streams, post.dim);
  launch("hc_post", post_kernel, {post.tokens, kLanes}, queue, post, round_bf16, result_TMD);
}

void sinkhorn(const cpu::Sinkhorn& step, float* comb_TMM, Queue queue) {
  check_sizes(step.num_streams >= 1 && step.num_streams <= kMaxStreams && step.iters >= 1, "streams, iterations",
              step.num_streams, step.iters);
  launch("sinkhorn", sinkhorn_kernel, {step.tokens, kSinkhornLanes}, queue, step, comb_TMM);
}

}  // namespace kernels::gpu
