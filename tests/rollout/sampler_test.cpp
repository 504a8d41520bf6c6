#include "rollout/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/rng.h"

namespace rollout {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Draw draw(const std::vector<float>& logits, const SamplingParams& params, uint64_t seed = 1, int64_t position = 0) {
  RowSampler sampler;
  const auto drawn = sampler.draw(logits, params, seed, position);
  EXPECT_TRUE(drawn.has_value());
  return drawn.value_or(Draw{-1, 0});
}

// Ids that `count` different positions draw, with how often.
std::map<int32_t, int64_t> histogram(const std::vector<float>& logits, const SamplingParams& params, int64_t count) {
  RowSampler sampler;
  std::map<int32_t, int64_t> seen;
  for (int64_t position = 0; position < count; ++position) ++seen[sampler.draw(logits, params, 7, position)->id];
  return seen;
}

std::set<int32_t> support(const std::vector<float>& logits, const SamplingParams& params) {
  std::set<int32_t> ids;
  for (const auto& [id, count] : histogram(logits, params, 4000)) ids.insert(id);
  return ids;
}

std::vector<float> normal_logits(int64_t count, double scale, uint64_t seed) {
  base::Philox random(seed);
  std::vector<float> logits(static_cast<size_t>(count));
  for (float& z : logits) z = static_cast<float>(scale * random.next_normal());
  return logits;
}

// log_softmax(z / T) in f64, and how far f32 may be from it: z / T and the difference from the maximum are rounded once
// each (2^-24 of |z| / T), each exponential carries that as a relative error plus about one of its own, and a sum over
// blocks and lanes adds fewer than 200 roundings.
struct Reference {
  double log_prob, tolerance;
};
Reference reference(const std::vector<float>& logits, double temperature, int32_t id) {
  double highest = -INFINITY, largest = 0, sum = 0;
  for (const float z : logits) {
    highest = std::max(highest, z / temperature);
    if (std::isfinite(z)) largest = std::max(largest, std::abs(z / temperature));
  }
  for (const float z : logits) sum += std::exp(z / temperature - highest);
  const double log_prob = logits[static_cast<size_t>(id)] / temperature - highest - std::log(sum);
  return {log_prob, 0x1p-24 * (6 * largest + 200 + 2 * std::abs(log_prob))};
}

// Pearson's statistic against softmax(z / T) restricted to `ids`.
double chi_square(const std::map<int32_t, int64_t>& seen, const std::vector<float>& logits, double temperature,
                  const std::set<int32_t>& ids, int64_t count) {
  double sum = 0, statistic = 0;
  for (const int32_t id : ids) sum += std::exp(logits[static_cast<size_t>(id)] / temperature);
  for (const int32_t id : ids) {
    const double expected = static_cast<double>(count) * std::exp(logits[static_cast<size_t>(id)] / temperature) / sum;
    const auto at = seen.find(id);
    const double observed = at == seen.end() ? 0.0 : static_cast<double>(at->second);
    statistic += (observed - expected) * (observed - expected) / expected;
  }
  return statistic;
}

std::set<int32_t> first_ids(int32_t count) {
  std::set<int32_t> ids;
  for (int32_t id = 0; id < count; ++id) ids.insert(id);
  return ids;
}

// Quantiles of chi-square at 1 - 1e-6 (a fixed seed passes or fails for good; a wrong distribution is far beyond them).
constexpr double kChi31 = 83.7, kChi3 = 30.7;

TEST(Sampler, FrequenciesFollowTheSoftmaxAtTheTemperature) {
  const std::vector<float> logits = normal_logits(32, 1.0, 3);
  for (const double temperature : {0.6, 1.0, 1.7}) {
    SamplingParams params;
    params.temperature = temperature;
    const auto seen = histogram(logits, params, 50000);
    EXPECT_LT(chi_square(seen, logits, temperature, first_ids(32), 50000), kChi31) << "temperature " << temperature;
  }
}

TEST(Sampler, AWrongTemperatureFailsTheFrequencyTest) {
  const std::vector<float> logits = normal_logits(32, 1.0, 3);
  const auto seen = histogram(logits, SamplingParams{}, 50000);
  EXPECT_GT(chi_square(seen, logits, 1.2, first_ids(32), 50000), kChi31);
}

TEST(Sampler, FilteredFrequenciesAreTheSoftmaxRestrictedToWhatIsKept) {
  const std::vector<float> logits = {0.3f, 2.0f, -1.0f, 1.5f, 0.9f, 1.1f, -3.0f, 0.0f};
  SamplingParams params;
  params.top_k = 4;
  const auto seen = histogram(logits, params, 50000);
  EXPECT_LT(chi_square(seen, logits, 1.0, {1, 3, 4, 5}, 50000), kChi3);
}

TEST(Sampler, NeighbouringSeedsAndPositionsAreIndependent) {
  // Pairs of draws at (seed, position) and (seed + 1, position), over four equally likely tokens: 16 cells, 15 degrees.
  const std::vector<float> logits(4, 0.0f);
  RowSampler sampler;
  std::array<std::array<double, 16>, 2> cells{};
  constexpr int64_t kPairs = 32000;
  for (int64_t i = 0; i < kPairs; ++i) {
    const auto id = [&](uint64_t seed, int64_t at) { return sampler.draw(logits, SamplingParams{}, seed, at)->id; };
    const auto seed = static_cast<uint64_t>(i);
    ++cells[0][static_cast<size_t>(id(seed, 11) * 4 + id(seed + 1, 11))];
    ++cells[1][static_cast<size_t>(id(5, i) * 4 + id(5, i + 1))];
  }
  for (const auto& table : cells) {
    double statistic = 0;
    for (const double observed : table)
      statistic += (observed - kPairs / 16.0) * (observed - kPairs / 16.0) / (kPairs / 16.0);
    EXPECT_LT(statistic, 56.5);  // quantile of 15 degrees at 1 - 1e-6
  }
}

TEST(Sampler, LogProbIsOfTheScaledLogitsOverTheFullVocabulary) {
  // Case lp-02: scale the logits, not the log-prob. log_softmax([4, 2, 0])[0] = -log(1 + e^-2 + e^-4).
  RowSampler sampler;
  const std::vector<float> logits = {2.0f, 1.0f, 0.0f};
  EXPECT_NEAR(*sampler.log_prob(logits, 0.5, 0), -0.142931628, 1e-6);
  for (const int64_t size : {5, 1000, 1025, 129280}) {
    const std::vector<float> row = normal_logits(size, 3.0, 9);
    for (const double temperature : {0.3, 1.0, 1.3}) {
      const Reference want = reference(row, temperature, 4);
      EXPECT_NEAR(*sampler.log_prob(row, temperature, 4), want.log_prob, want.tolerance)
          << size << " at " << temperature;
    }
  }
}

TEST(Sampler, FiltersDoNotChangeTheLogProb) {
  const std::vector<float> logits = normal_logits(200, 2.0, 5);
  SamplingParams filtered;
  filtered.temperature = 0.7;
  filtered.top_p = 0.4;
  filtered.top_k = 9;
  filtered.min_p = 0.05;
  RowSampler sampler;
  for (int64_t position = 0; position < 50; ++position) {
    const Draw drawn = draw(logits, filtered, 3, position);
    EXPECT_EQ(drawn.log_prob, *sampler.log_prob(logits, 0.7, drawn.id));
  }
}

TEST(Sampler, GreedyTakesTheLowestIdOfTheHighestScoreAtTemperatureOne) {
  // Case lp-04: T = 0 divides nothing; the log-prob is the untempered model's.
  const std::vector<float> logits = {1.0f, 3.0f, 3.0f, -kInf};
  for (const double temperature : {0.0, 9e-7}) {
    SamplingParams params;
    params.temperature = temperature;
    const Draw drawn = draw(logits, params);
    EXPECT_EQ(drawn.id, 1);
    EXPECT_NEAR(drawn.log_prob, -std::log(2 + std::exp(-2.0)), 1e-6);
  }
}

TEST(Sampler, TopKKeepsTheLowerIdsOfATie) {
  SamplingParams params;
  params.top_k = 3;
  EXPECT_EQ(support({1.0f, 1.0f, 2.0f, 1.0f, 1.0f}, params), (std::set<int32_t>{0, 1, 2}));
  params.top_k = 100;
  EXPECT_EQ(support({1.0f, 1.0f, 2.0f}, params).size(), 3u);
}

TEST(Sampler, TopPKeepsTheShortestListThatReachesTheMass) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
  SamplingParams params;
  for (const auto& [top_p, ids] : std::vector<std::pair<double, std::set<int32_t>>>{
           {0.05, {1}}, {0.39, {1}}, {0.41, {1, 3}}, {0.69, {1, 3}}, {0.71, {1, 2, 3}}, {0.95, {0, 1, 2, 3}}}) {
    params.top_p = top_p;
    EXPECT_EQ(support(logits, params), ids) << top_p;
  }
  params.top_p = 0.5;  // exactly reached by two of four equal tokens
  EXPECT_EQ(support({0, 0, 0, 0}, params), (std::set<int32_t>{0, 1}));
}

TEST(Sampler, MinPIsRelativeToTheMostProbableToken) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.26f), std::log(0.24f)};
  SamplingParams params;
  params.min_p = 0.5;
  EXPECT_EQ(support(logits, params), (std::set<int32_t>{0, 1}));
  params.temperature = 0.5;  // 0.25 : 0.0676 : 0.0576
  EXPECT_EQ(support(logits, params), (std::set<int32_t>{0}));
}

TEST(Sampler, FiltersAreJudgedOnTheFullDistribution) {
  // Joint: top-p 0.55 of the full distribution keeps 0.4 and 0.3, though of the three that top-k keeps (mass 0.9) 0.4
  // is 0.44.
  const std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
  SamplingParams params;
  params.top_k = 3;
  params.top_p = 0.42;
  EXPECT_EQ(support(logits, params), (std::set<int32_t>{1, 3}));
  params.top_k = 1;
  EXPECT_EQ(support(logits, params), (std::set<int32_t>{1}));
}

TEST(Sampler, TopPOverALargeVocabularyEqualsASortOfAllTokens) {
  const std::vector<float> logits = normal_logits(5000, 1.5, 21);
  SamplingParams params;
  params.top_p = 0.1;
  std::vector<int32_t> order(logits.size());
  double total = 0;
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i), total += std::exp(double{logits[i]});
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  std::set<int32_t> nucleus;
  double mass = 0;
  for (const int32_t id : order) {
    nucleus.insert(id);
    if ((mass += std::exp(double{logits[id]})) >= 0.1 * total) break;
  }
  const auto seen = histogram(logits, params, 20000);
  for (const auto& [id, count] : seen) EXPECT_TRUE(nucleus.count(id)) << id;
  EXPECT_GT(seen.size() + 2, nucleus.size());  // each of the 20 or so has a chance above 1/1000
}

// What sampler.h states, without blocks of lanes or a partial sort: all ids in order (best first), those that are kept,
// then one f64 chain over them. A draw may differ from it only where the target falls within rounding of a boundary
// between two ids.
int32_t plain_draw(const std::vector<double>& weights, std::vector<size_t> order, const SamplingParams& params,
                   double u) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (params.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(params.top_k)));
  double mass = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    mass += weights[order[i]];
    if (params.top_p < 1 && mass >= params.top_p * total) order.resize(i + 1);
  }
  std::erase_if(order, [&](size_t id) { return weights[id] < params.min_p || weights[id] == 0; });
  std::sort(order.begin(), order.end());
  double kept = 0, walked = 0;
  for (const size_t id : order) kept += weights[id];
  for (const size_t id : order) {
    walked += weights[id];
    if (walked > u * kept) return static_cast<int32_t>(id);
  }
  return static_cast<int32_t>(order.back());
}

TEST(Sampler, BlocksAndPartialSortsDrawWhatThePlainMethodDraws) {
  for (const int64_t size : {40, 1024, 5000, 40000}) {
    std::vector<float> logits = normal_logits(size, 2.0, 31);
    for (size_t i = 0; i < logits.size(); i += 3) logits[i] = std::round(logits[i]);  // ties
    const double highest = *std::max_element(logits.begin(), logits.end());
    std::vector<double> weights;
    for (const float z : logits) weights.push_back(std::exp((z - highest) / 0.8));
    std::vector<size_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    int64_t differences = 0, draws = 0;
    for (const double top_p : {1.0, 0.99, 0.5}) {
      for (const int64_t top_k : {-1, 1, 50, 700}) {
        for (const double min_p : {0.0, 0.02, 1.0}) {
          SamplingParams params;
          params.temperature = 0.8, params.top_p = top_p, params.top_k = top_k, params.min_p = min_p;
          RowSampler sampler;
          for (int64_t position = 0; position < 12; ++position, ++draws) {
            const auto words = base::philox(9, static_cast<uint64_t>(position));
            const double u = (static_cast<double>((uint64_t{words[0]} << 32 | words[1]) >> 11) + 0.5) * 0x1p-53;
            differences += sampler.draw(logits, params, 9, position)->id != plain_draw(weights, order, params, u);
          }
        }
      }
    }
    // f32 weights move a boundary by 2^-22 of the mass, of 36 * 12 draws.
    EXPECT_LE(differences, 1) << size << ", of " << draws;
  }
}

TEST(Sampler, IdsWithoutATokenAreNeverDrawn) {
  std::vector<float> logits(64, -kInf);
  logits[10] = 0;
  logits[20] = -2;
  EXPECT_EQ(support(logits, SamplingParams{}), (std::set<int32_t>{10, 20}));
  SamplingParams params;
  params.top_p = 0.999;
  params.top_k = 50;
  EXPECT_EQ(support(logits, params), (std::set<int32_t>{10, 20}));
}

TEST(Sampler, ATokenOfProbabilityZeroHasAFiniteLogProb) {
  // Case lp-08.
  RowSampler sampler;
  EXPECT_EQ(*sampler.log_prob(std::vector<float>{0.0f, -kInf}, 1.0, 1), kLowestLogProb);
  EXPECT_EQ(*sampler.log_prob(std::vector<float>{0.0f, -1e30f}, 1.0, 1), kLowestLogProb);
}

TEST(Sampler, NonFiniteRowsAreRefused) {
  RowSampler sampler;
  const SamplingParams params;
  EXPECT_FALSE(sampler.draw(std::vector<float>{0.0f, NAN, 1.0f}, params, 1, 0).has_value());
  EXPECT_FALSE(sampler.draw(std::vector<float>{NAN, 0.0f}, params, 1, 0).has_value());
  EXPECT_FALSE(sampler.draw(std::vector<float>{0.0f, kInf}, params, 1, 0).has_value());
  EXPECT_FALSE(sampler.draw(std::vector<float>{-kInf, -kInf}, params, 1, 0).has_value());
  EXPECT_FALSE(sampler.log_prob(std::vector<float>{3e38f, 0.0f}, 0.1, 0).has_value());
}

TEST(Sampler, ADrawDependsOnItsRowSeedAndPositionOnly) {
  const std::vector<float> a = normal_logits(3000, 1.0, 1), b = normal_logits(40, 1.0, 2);
  RowSampler used;
  SamplingParams params;
  params.top_p = 0.9;
  for (int64_t position = 0; position < 30; ++position) {
    const Draw alone = draw(b, params, 5, position);
    used.draw(a, params, 6, position + 1);  // other work in between
    const Draw again = *used.draw(b, params, 5, position);
    EXPECT_EQ(alone.id, again.id);
    EXPECT_EQ(alone.log_prob, again.log_prob);
  }
}

TEST(Sampler, GroupMembersDifferAndTheSameSeedGivesTheSameGroup) {
  // Case rs-13.
  const std::vector<float> logits = normal_logits(1000, 0.5, 8);
  std::set<int32_t> ids;
  for (const uint64_t seed : group_seeds(42, 8)) ids.insert(draw(logits, SamplingParams{}, seed, 20).id);
  EXPECT_GE(ids.size(), 7u);
  EXPECT_EQ(group_seeds(42, 8), group_seeds(42, 8));
  EXPECT_NE(group_seeds(42, 8), group_seeds(43, 8));
}

TEST(SamplingParams, BadValuesAreNamed) {
  const auto message = [](auto change) {
    SamplingParams params;
    change(params);
    try {
      params.check(32);
    } catch (const base::Error& error) {
      EXPECT_EQ(error.code(), base::Code::invalid_argument);
      return std::string(error.what());
    }
    return std::string();
  };
  using P = SamplingParams&;
  const std::vector<std::pair<std::string, std::string>> messages = {
      {"temperature", message([](P p) { p.temperature = -1; })},
      {"temperature", message([](P p) { p.temperature = NAN; })},
      {"temperature", message([](P p) { p.temperature = INFINITY; })},
      {"top_p", message([](P p) { p.top_p = 0; })},
      {"top_p", message([](P p) { p.top_p = 1.5; })},
      {"top_k", message([](P p) { p.top_k = 0; })},
      {"top_k", message([](P p) { p.top_k = -2; })},
      {"min_p", message([](P p) { p.min_p = NAN; })},
      {"max_new_tokens", message([](P p) { p.max_new_tokens = 0; })},
      {"stop", message([](P p) {
         p.stop = {"a", ""};
       })},
      {"151645", message([](P p) { p.stop_token_ids = {151645}; })},  // case rs-03
      {"stop_token_ids holds -1", message([](P p) { p.stop_token_ids = {-1}; })}};
  for (const auto& [part, text] : messages) EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
  EXPECT_EQ(message([](P) {}), "");
}

TEST(SamplingParams, DefaultsFilterNothing) {
  // Case rs-14: nothing but the request and these defaults decides.
  const SamplingParams params;
  EXPECT_EQ(params.temperature, 1.0);
  EXPECT_EQ(params.top_p, 1.0);
  EXPECT_EQ(params.top_k, -1);
  EXPECT_EQ(params.min_p, 0.0);
}

}  // namespace
}  // namespace rollout
