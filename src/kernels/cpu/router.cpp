// Scores in blocks of 16 experts, of which the best so far are kept in order.
#include "kernels/cpu/router.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/parallel.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/router.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/row_inl.h"
// After highway.h.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = 16;  // experts
constexpr float kLow = -30;     // below it log1p(exp(l)) = exp(l) in f32

// exp of what is at most 0; NaN stays NaN, which it does not in Highway's.
HWY_INLINE V exp_below(V x) { return hn::IfThenElse(hn::Eq(x, x), hn::Exp(D(), x), x); }

// The logistic function and its complement, each to full relative accuracy.
struct Logistic {
  V value, rest;
};
HWY_INLINE Logistic logistic(V x) {
  const D d;
  const V e = exp_below(hn::Neg(hn::Abs(x))), one = hn::Set(d, 1.0f);
  const V large = hn::Div(one, hn::Add(one, e)), small = hn::Mul(e, large);
  const auto positive = hn::Ge(x, hn::Zero(d));
  return {hn::IfThenElse(positive, large, small), hn::IfThenElse(positive, small, large)};
}

HWY_INLINE V sqrt_softplus(V x) {
  const D d;
  const auto low = hn::Lt(x, hn::Set(d, kLow)), negative = hn::Lt(x, hn::Zero(d));
  const V e = exp_below(hn::IfThenElse(low, hn::Mul(x, hn::Set(d, 0.5f)), hn::Neg(hn::Abs(x))));
  const V softplus = hn::Add(hn::Log1p(d, e), hn::IfThenZeroElse(negative, x));
  return hn::IfThenElse(low, e, hn::Sqrt(softplus));
}

// d score / d logit, not of softmax.
HWY_INLINE V slope(V x, Scoring scoring) {
  const D d;
  const Logistic part = logistic(x);
  if (scoring == Scoring::sigmoid) return hn::Mul(part.value, part.rest);
  const V root = sqrt_softplus(x);
  const auto low = hn::Lt(x, hn::Set(d, kLow));
  return hn::Mul(hn::Set(d, 0.5f), hn::IfThenElse(low, root, hn::Div(part.value, root)));
}

// What a softmax over a row needs; max alone is used by the others.
struct RowSum {
  float max = 0, sum = 1;
};

HWY_INLINE V score(V x, Scoring scoring, RowSum row) {
  const D d;
  if (scoring == Scoring::sqrtsoftplus) return sqrt_softplus(x);
  if (scoring == Scoring::sigmoid) return logistic(x).value;
  return hn::Div(exp_below(hn::Sub(x, hn::Set(d, row.max))), hn::Set(d, row.sum));
}

HWY_INLINE void scores_of(const float* logits, int64_t count, Scoring scoring, RowSum row, float* scores) {
  each_vector(count, [&](int64_t i, auto access)
                         HWY_ATTR { access.store(score(access.load(logits + i), scoring, row), scores + i); });
}

RowSum row_sum(const float* logits, int64_t count) {
  RowSum row{*std::max_element(logits, logits + count)};
  float terms[kBlock], sum = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    scores_of(logits + begin, size, Scoring::softmax, row, terms);  // divided by a sum of 1
    for (int64_t i = 0; i < size; ++i) sum += terms[i];
  }
  row.sum = sum;
  return row;
}

HWY_INLINE bool before(float a, float b) { return a > b || (std::isnan(a) && !std::isnan(b)); }

void best_of_row(const RouterInput& input, const float* logits, const float* bias, int32_t* expert) {
  float scores[kBlock];
  float keys[kMostChosen];
  const RowSum row = input.scoring == Scoring::softmax ? row_sum(logits, input.experts) : RowSum();
  int64_t filled = 0;
  for (int64_t begin = 0; begin < input.experts; begin += kBlock) {
    const int64_t count = std::min(kBlock, input.experts - begin);
    scores_of(logits + begin, count, input.scoring, row, scores);
    for (int64_t i = 0; i < count; ++i) {
      const float key = scores[i] + bias[begin + i];
      if (filled == input.per_token && !before(key, keys[filled - 1])) continue;
      int64_t place = filled < input.per_token ? filled++ : filled - 1;
      for (; place > 0 && before(key, keys[place - 1]); --place) {
        keys[place] = keys[place - 1];
        expert[place] = expert[place - 1];
      }
      keys[place] = key;
      expert[place] = static_cast<int32_t>(begin + i);
    }
  }
  std::sort(expert, expert + input.per_token);
}

// Scores of the chosen and their sum in order.
float chosen_scores(const RouterInput& input, const float* logits, const int32_t* expert, RowSum row, float* scores) {
  float gathered[kMostChosen];
  for (int64_t a = 0; a < input.per_token; ++a) gathered[a] = logits[expert[a]];
  scores_of(gathered, input.per_token, input.scoring, row, scores);
  float sum = 0;
  for (int64_t a = 0; a < input.per_token; ++a) sum += scores[a];
  return sum;
}

void weights_of_row(const RouterInput& input, const float* logits, const int32_t* expert, float* weight) {
  float scores[kMostChosen];
  const bool softmax = input.scoring == Scoring::softmax;
  const RowSum row = softmax ? row_sum(logits, input.experts) : RowSum();
  const float sum = chosen_scores(input, logits, expert, row, scores);
  const float divisor = input.normalise && !softmax ? sum : 1;
  for (int64_t a = 0; a < input.per_token; ++a) weight[a] = scores[a] / divisor * input.factor;
}

// dscore[a] of the chosen from dweight (spec 5.4).
void score_gradients(const RouterInput& input, const float* scores, float sum, const float* dweight, float* dscore) {
  const bool normalise = input.normalise && input.scoring != Scoring::softmax;
  float mean = 0;
  for (int64_t a = 0; normalise && a < input.per_token; ++a) mean += dweight[a] * (scores[a] / sum);
  const float factor = normalise ? input.factor / sum : input.factor;
  for (int64_t a = 0; a < input.per_token; ++a) dscore[a] = factor * (dweight[a] - mean);
}

void softmax_gradient(const RouterInput& input, const float* logits, const int32_t* expert, RowSum row,
                      const float* dscore, float* dlogits) {
  float scores[kBlock];
  for (int64_t a = 0; a < input.per_token; ++a) dlogits[expert[a]] += dscore[a];
  float mean = 0;
  for (const bool subtract : {false, true}) {
    for (int64_t begin = 0; begin < input.experts; begin += kBlock) {
      const int64_t count = std::min(kBlock, input.experts - begin);
      scores_of(logits + begin, count, input.scoring, row, scores);
      for (int64_t i = 0; i < count; ++i) {
        float& gradient = dlogits[begin + i];
        subtract ? void(gradient = scores[i] * (gradient - mean)) : void(mean += scores[i] * gradient);
      }
    }
  }
}

void gradient_of_row(const RouterInput& input, const float* logits, const int32_t* expert, const float* dweight,
                     float* dlogits) {
  float scores[kMostChosen], slopes[kMostChosen], dscore[kMostChosen], gathered[kMostChosen];
  const bool softmax = input.scoring == Scoring::softmax;
  const RowSum row = softmax ? row_sum(logits, input.experts) : RowSum();
  const float sum = chosen_scores(input, logits, expert, row, scores);
  score_gradients(input, scores, sum, dweight, dscore);
  std::fill(dlogits, dlogits + input.experts, 0.0f);
  if (softmax) return softmax_gradient(input, logits, expert, row, dscore, dlogits);
  for (int64_t a = 0; a < input.per_token; ++a) gathered[a] = logits[expert[a]];
  each_vector(input.per_token, [&](int64_t a, auto access) HWY_ATTR {
    access.store(slope(access.load(gathered + a), input.scoring), slopes + a);
  });
  for (int64_t a = 0; a < input.per_token; ++a) dlogits[expert[a]] += dscore[a] * slopes[a];
}

void best_rows(const RouterInput& input, const float* bias, int32_t* expert, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    best_of_row(input, input.logits + t * input.experts, bias, expert + t * input.per_token);
  }
}

void weight_rows(const RouterInput& input, const int32_t* expert, float* weight, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t first = t * input.per_token;
    weights_of_row(input, input.logits + t * input.experts, expert + first, weight + first);
  }
}

void gradient_rows(const RouterInput& input, const int32_t* expert, const float* dweight, float* dlogits, int64_t begin,
                   int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t first = t * input.per_token, row = t * input.experts;
    gradient_of_row(input, input.logits + row, expert + first, dweight + first, dlogits + row);
  }
}

}  // namespace
}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {
namespace {

HWY_EXPORT(best_rows);
HWY_EXPORT(weight_rows);
HWY_EXPORT(gradient_rows);

constexpr int64_t kGrainElements = 8192;  // about 20 microseconds of scores

int64_t grain(int64_t per_row) { return std::max<int64_t>(kGrainElements / std::max<int64_t>(per_row, 1), 1); }

void check(const RouterInput& input) {
  CHECK(input.per_token >= 1 && input.per_token <= std::min(kMostChosen, input.experts), "{} of {} experts per token",
        input.per_token, input.experts);
}

}  // namespace

void best_experts(const RouterInput& input, const float* bias, int32_t* expert) {
  check(input);
  base::parallel_for(input.tokens, grain(input.experts), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(best_rows)(input, bias, expert, begin, end);
  });
}

void expert_weights(const RouterInput& input, const int32_t* expert, float* weight) {
  check(input);
  const int64_t per_row = input.scoring == Scoring::softmax ? input.experts : input.per_token;
  base::parallel_for(input.tokens, grain(per_row), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(weight_rows)(input, expert, weight, begin, end);
  });
}

void expert_weights_gradient(const RouterInput& input, const int32_t* expert, const float* dweight, float* dlogits) {
  check(input);
  base::parallel_for(input.tokens, grain(input.experts), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(gradient_rows)(input, expert, dweight, dlogits, begin, end);
  });
}

}  // namespace kernels::cpu
#endif  // HWY_ONCE
