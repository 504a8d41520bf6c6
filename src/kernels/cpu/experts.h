// What experts do around their products: rows sorted by expert, the gated activation and its gradient, the sum over a
// token's experts. Torch-free.
//
//   h = weight * (silu(min(g, limit)) * clamp(u, -limit, limit)), then to bf16, then on the e4m3 grid in groups of 128
//   silu(g) = g * s,  s = 1 / (1 + e) for g >= 0, e / (1 + e) below it,  e = exp(-|g|)
//
// A row's result depends on that row only. Letters: T tokens, A experts per token, P = T * A pairs (a token and one of
// its experts), F intermediate size, D hidden size.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace kernels::cpu {

// The pairs as rows in the order of their experts; inside an expert tokens ascend. Memory is kept from call to call.
class ExpertRows {
 public:
  struct Group {
    int64_t expert, first, count;  // rows [first, first + count) are its
  };

  // expert [T, A]. CHECK: each in [0, num_experts).
  void sort(const int32_t* expert, int64_t tokens, int64_t per_token, int64_t num_experts);

  std::span<const Group> groups() const { return groups_; }  // of experts that have rows, ascending
  const int32_t* token(int64_t row = 0) const { return token_.data() + row; }
  const int32_t* pair(int64_t row = 0) const { return pair_.data() + row; }  // token * A + choice
  int64_t size() const { return static_cast<int64_t>(pair_.size()); }        // P

 private:
  std::vector<Group> groups_;
  std::vector<int32_t> token_, pair_, next_;
};

struct Swiglu {
  const float* gate = nullptr;  // [rows, F], as are all below
  const float* up = nullptr;
  const float* weight = nullptr;  // of row r: weight[pair ? pair[r] : r]; nullptr: 1
  const int32_t* pair = nullptr;
  int64_t rows = 0, width = 0;
  float limit = 0;  // <= 0: no clamp
  bool round_bf16 = false, simulate = false;
};

// h may be gate or up.
void swiglu(const Swiglu& input, float* h);

struct SwigluGradient {
  float *dgate = nullptr, *dup = nullptr;  // may be dh; 0 where a clamp cuts, which it does beyond the limit only
  float* dweight = nullptr;  // written where weight is read: the sum over F of dh * h / weight in 16 chains, element i
                             // in chain i mod 16, then halves of the chains; nullptr: not wanted
};
void swiglu_gradient(const Swiglu& input, const float* dh, const SwigluGradient& gradient);

// out[t] = start[t] + rows[t * A] + .. + rows[t * A + A - 1] + end[t], from left to right, to bf16 when asked for.
struct PairSum {
  const float* start = nullptr;  // [T, D] or nullptr: without
  const float* rows = nullptr;   // [P, D]
  const float* end = nullptr;    // [T, D] or nullptr: without
  float* out = nullptr;          // [T, D]; may be start or end
  int64_t tokens = 0, per_token = 0, width = 0;
  bool round_bf16 = false;
};
void sum_pairs(const PairSum& sum);

}  // namespace kernels::cpu
