// Mistakes that show in the log-probs alone.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "compare/differences.h"

namespace compare {
namespace {

constexpr double kClose = 0.02;      // nats: what rounding alone makes of a log-prob
constexpr size_t kFewest = 8;        // tokens below which nothing is concluded
constexpr double kAlmostAll = 0.95;  // share of tokens that a pattern must fit

struct Value {
  double a, b;
};

// Pairs (a[t], b[t + shift]) of all sequences.
std::vector<Value> pairs(std::span<const LogProbs> a, std::span<const LogProbs> b, int64_t shift) {
  std::vector<Value> values;
  for (size_t s = 0; s < a.size(); ++s) {
    const auto count = static_cast<int64_t>(a[s].size());
    for (int64_t t = 1; t < count; ++t) {
      if (t + shift < 1 || t + shift >= count) continue;
      const auto &x = a[s][static_cast<size_t>(t)], &y = b[s][static_cast<size_t>(t + shift)];
      if (x && y && *x > kImpossible && *y > kImpossible) values.push_back({*x, *y});
    }
  }
  return values;
}

double share(const std::vector<Value>& values, const auto& fits) {
  if (values.size() < kFewest) return 0;
  return static_cast<double>(std::count_if(values.begin(), values.end(), fits)) / static_cast<double>(values.size());
}

bool close(const Value& v) { return std::abs(v.a - v.b) <= kClose * (1 + std::abs(v.a)); }

bool has_bits(double value, int dropped) {
  return (std::bit_cast<uint32_t>(static_cast<float>(value)) & ((1u << dropped) - 1)) == 0;
}

void add_shift(std::span<const LogProbs> a, std::span<const LogProbs> b, std::vector<std::string>& found) {
  for (const int64_t shift : {1, -1}) {
    if (share(pairs(a, b, shift), close) < kAlmostAll) continue;
    found.push_back(fmt::format("B's log-probs are A's, {} by one position: logits at t predict the token at t + 1",
                                shift > 0 ? "later" : "earlier"));
  }
}

void add_ratio(const std::vector<Value>& values, std::vector<std::string>& found) {
  double aa = 0, ab = 0;
  for (const Value& v : values) {
    aa += v.a * v.a;
    ab += v.a * v.b;
  }
  if (aa == 0 || ab <= 0) return;
  const double ratio = ab / aa;
  if (std::abs(ratio - 1) < 0.05) return;
  const auto fits = [&](const Value& v) { return std::abs(v.b - ratio * v.a) <= kClose * (ratio + std::abs(v.b)); };
  if (share(values, fits) < kAlmostAll) return;
  found.push_back(fmt::format(
      "B's log-probs are A's times {:.3g}: as if divided by a temperature of {:.3g} after the softmax; the logits "
      "are to be divided, before it",
      ratio, 1 / ratio));
}

// bf16 keeps the upper 16 bits of an f32; f16 has 10 bits of mantissa, 13 fewer.
void add_bits(const std::vector<Value>& values, std::vector<std::string>& found) {
  for (const bool of_a : {true, false}) {
    const auto value = [&](const Value& v) { return of_a ? v.a : v.b; };
    const auto other = [&](const Value& v) { return of_a ? v.b : v.a; };
    for (const auto& [name, dropped] : {std::pair{"bf16", 16}, std::pair{"f16", 13}}) {
      if (share(values, [&](const Value& v) { return has_bits(value(v), dropped); }) < 1) continue;
      if (share(values, [&](const Value& v) { return has_bits(other(v), dropped); }) > 0.5) continue;
      found.push_back(fmt::format("every log-prob of {} is a {} number: it keeps too few bits (f32 is right)",
                                  of_a ? "A" : "B", name));
      break;
    }
  }
}

}  // namespace

std::vector<std::string> patterns(std::span<const LogProbs> a, std::span<const LogProbs> b) {
  std::vector<std::string> found;
  const std::vector<Value> values = pairs(a, b, 0);
  if (values.size() < kFewest) return found;
  add_bits(values, found);
  if (share(values, close) >= kAlmostAll) return found;
  add_shift(a, b, found);
  add_ratio(values, found);
  return found;
}

}  // namespace compare
