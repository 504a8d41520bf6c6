// Generation over a cache gives what one full forward pass gives, to the bit, whatever the chunks, the neighbours and
// the slot's past.
#include <gtest/gtest.h>

#include <limits>

#include "base/rng.h"
#include "fixture.h"
#include "model/transformer.h"

namespace test {
namespace {

using model::Span;
constexpr int64_t kCapacity = 200;

// A model with random weights of the fixture, run without and with a cache.
class Generation : public testing::Test {
 protected:
  Generation() {
    config_ = model::Config::load(model_golden("small"));
    model_ = RunModel(load_masters(config_, model_golden("small") / "model.safetensors"), model::Profile());
  }

  Tensor random_ids(int64_t count, uint64_t seed) const {
    base::Philox random(seed);
    const Tensor ids = at::empty({count}, at::kLong);
    for (int64_t i = 0; i < count; ++i) {
      ids[i] = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(config_.vocab_size)));
    }
    return ids;
  }
  // Logits of every token.
  Tensor run(const std::vector<Span>& spans, const Tensor& ids, model::Cache* cache) const {
    const model::Layout layout = model::make_layout(config_, spans, cache ? cache->capacity() : 0);
    return model_.logits(model::forward_streams(model_.pass(layout, ids, cache)));
  }
  Tensor full(const Tensor& ids) const { return run({{0, ids.size(0), 0}}, ids, nullptr); }
  model::Cache cache(int64_t slots) const { return model::Cache(config_, slots, kCapacity, at::kCPU); }
  // A sequence in pieces of `chunk` tokens from `start` on.
  Tensor in_chunks(const Tensor& ids, int64_t start, int64_t chunk, int64_t slot, model::Cache& cache) const {
    std::vector<Tensor> logits;
    for (int64_t at = start; at < ids.size(0); at += chunk) {
      const int64_t count = std::min(chunk, ids.size(0) - at);
      logits.push_back(run({{at, count, slot}}, ids.narrow(0, at, count), &cache));
    }
    return at::cat(logits);
  }

  at::NoGradGuard no_grad_;
  model::Config config_;
  RunModel model_;
};

TEST_F(Generation, DecodingTokenByTokenEqualsTheFullForward) {
  const Tensor ids = random_ids(90, 1);
  model::Cache state = cache(1);
  EXPECT_TRUE(at::equal(in_chunks(ids, 0, 1, 0, state), full(ids)));
}

class ChunkedPrefill : public Generation, public testing::WithParamInterface<int64_t> {};

TEST_P(ChunkedPrefill, EqualsTheFullForwardAndSoDoesTheDecodingAfterIt) {
  const Tensor ids = random_ids(170, 2), prompt = ids.narrow(0, 0, 150);
  model::Cache state = cache(2);
  const Tensor prefill = in_chunks(prompt, 0, GetParam(), 1, state), wanted = full(ids);
  EXPECT_TRUE(at::equal(prefill, wanted.narrow(0, 0, 150)));
  EXPECT_TRUE(at::equal(in_chunks(ids, 150, 1, 1, state), wanted.narrow(0, 150, 20)));
}

INSTANTIATE_TEST_SUITE_P(Sizes, ChunkedPrefill, testing::Values(1, 3, 7, 16, 33, 64, 130));

TEST_F(Generation, APromptOfAnyRemainderIsDecodedOnAsInTheFullForward) {
  const Tensor ids = random_ids(26, 3), wanted = full(ids);
  for (int64_t prompt = 1; prompt <= 3 * config_.hca_ratio;
       ++prompt) {  // every remainder of both ratios, more than once
    model::Cache state = cache(1);
    const Tensor first = run({{0, prompt, 0}}, ids.narrow(0, 0, prompt), &state),
                 rest = in_chunks(ids, prompt, 1, 0, state);
    EXPECT_TRUE(at::equal(at::cat({first, rest}), wanted)) << "prompt of " << prompt;
  }
}

TEST_F(Generation, PackedDocumentsEqualEachAlone) {
  const std::vector<int64_t> lengths = {1, 30, 2, 61, 8, 5, 4, 7};
  std::vector<Span> spans;
  std::vector<Tensor> ids, alone;
  for (size_t i = 0; i < lengths.size(); ++i) {
    spans.push_back({0, lengths[i], 0});
    ids.push_back(random_ids(lengths[i], 10 + i));
    alone.push_back(full(ids.back()));
  }
  EXPECT_TRUE(at::equal(run(spans, at::cat(ids), nullptr), at::cat(alone)));
}

// What a scheduler does: in every pass some sequences take a chunk of their prompt, some one token, some wait.
TEST_F(Generation, ABatchOfSequencesInMixedPassesEqualsEachAlone) {
  const std::vector<int64_t> lengths = {40, 17, 3, 64, 9}, slots = {3, 0, 4, 1, 2};
  std::vector<Tensor> ids, got(lengths.size());
  std::vector<int64_t> done(lengths.size(), 0);
  for (size_t i = 0; i < lengths.size(); ++i) ids.push_back(random_ids(lengths[i], 20 + i));
  model::Cache state = cache(6);
  base::Philox random(5);
  for (bool more = true; more;) {
    std::vector<Span> spans;
    std::vector<Tensor> inputs;
    std::vector<size_t> order;
    more = false;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const int64_t left = lengths[i] - done[i];
      more |= left > 0;
      const int64_t draw = static_cast<int64_t>(random.next_below(4)),
                    count = std::min(left, draw == 3 ? 13 : std::min<int64_t>(draw, 1));
      if (count == 0) continue;
      spans.push_back({done[i], count, slots[i]});
      inputs.push_back(ids[i].narrow(0, done[i], count));
      order.push_back(i);
    }
    if (spans.empty()) continue;
    const Tensor logits = run(spans, at::cat(inputs), &state);
    int64_t row = 0;
    for (size_t s = 0; s < spans.size(); ++s) {
      const Tensor mine = logits.narrow(0, row, spans[s].count);
      got[order[s]] = got[order[s]].defined() ? at::cat({got[order[s]], mine}) : mine;
      done[order[s]] += spans[s].count;
      row += spans[s].count;
    }
  }
  for (size_t i = 0; i < lengths.size(); ++i) EXPECT_TRUE(at::equal(got[i], full(ids[i]))) << "sequence " << i;
}

TEST_F(Generation, AForkedSlotGoesOnAsIfItHadItsOwnPrefill) {
  for (const int64_t prompt : {7, 8, 33, 34, 35, 36}) {
    model::Cache state = cache(4);
    const Tensor prefix = random_ids(prompt, 30);
    run({{0, prompt, 2}}, prefix, &state);
    state.fork(2, {0, 3});
    for (const int64_t slot : {0, 2, 3}) {
      const Tensor ids = at::cat({prefix, random_ids(14, 31 + static_cast<uint64_t>(slot))});
      const Tensor got = in_chunks(ids, prompt, 1, slot, state);
      EXPECT_TRUE(at::equal(got, full(ids).narrow(0, prompt, 14))) << "slot " << slot << ", prompt of " << prompt;
    }
  }
}

void fill(model::Cache& cache, int64_t num_layers, double value) {
  for (int64_t l = 0; l < num_layers; ++l) {
    model::LayerCache& layer = cache.layer(l);
    for (Tensor* part : {&layer.window_SXK, &layer.main.kv_SPC, &layer.main.score_SPC, &layer.main.entries_SNK,
                         &layer.index.kv_SPC, &layer.index.score_SPC, &layer.index.entries_SNK}) {
      if (part->defined()) part->fill_(value);
    }
  }
}

TEST_F(Generation, NothingOfASlotsPastReachesTheNextSequence) {
  const Tensor ids = random_ids(30, 40), earlier = random_ids(100, 41);
  model::Cache fresh = cache(2), used = cache(2), broken = cache(2);
  in_chunks(earlier, 0, 50, 0, used);
  in_chunks(earlier, 0, 50, 1, used);
  fill(broken, config_.num_hidden_layers,
       std::numeric_limits<double>::quiet_NaN());  // a sequence whose values overflowed
  const Tensor wanted = in_chunks(ids, 0, 9, 1, fresh);
  EXPECT_TRUE(at::equal(in_chunks(ids, 0, 9, 1, used), wanted));
  EXPECT_TRUE(at::equal(in_chunks(ids, 0, 9, 1, broken), wanted));
}

TEST_F(Generation, ASequenceOfNaNsLeavesItsNeighboursAlone) {
  const Tensor ids = random_ids(20, 50), other = random_ids(3, 51);
  model::Cache clean = cache(2), broken = cache(2);
  for (model::Cache* state : {&clean, &broken}) run({{0, 3, 0}}, other, state);
  fill(broken, config_.num_hidden_layers, std::numeric_limits<double>::quiet_NaN());
  const std::vector<Span> spans = {{3, 1, 0}, {0, 20, 1}};
  const Tensor both = at::cat({other.narrow(0, 0, 1), ids});
  EXPECT_TRUE(at::equal(run(spans, both, &broken).narrow(0, 1, 20), run(spans, both, &clean).narrow(0, 1, 20)));
}

TEST_F(Generation, AFullSlotHoldsCapacityTokens) {
  model::Cache state(config_, 1, 21, at::kCPU);
  const Tensor ids = random_ids(21, 60);
  EXPECT_TRUE(at::equal(in_chunks(ids, 0, 4, 0, state), full(ids)));
}

TEST_F(Generation, BytesPerSlotIsWhatTheCacheAllocates) {
  model::Cache state = cache(3);
  int64_t bytes = 0;
  for (int64_t l = 0; l < config_.num_hidden_layers; ++l) {
    const model::LayerCache& layer = state.layer(l);
    for (const Tensor& part : {layer.window_SXK, layer.main.kv_SPC, layer.main.score_SPC, layer.main.entries_SNK,
                               layer.index.kv_SPC, layer.index.score_SPC, layer.index.entries_SNK}) {
      if (part.defined()) bytes += static_cast<int64_t>(part.nbytes());
    }
  }
  EXPECT_EQ(model::Cache::bytes_per_slot(config_, kCapacity) * 3, bytes);
}

// Choices that were recorded, replayed: the same pass to the bit (routing replay).
TEST_F(Generation, ReplayedChoicesGiveTheSamePassToTheBit) {
  const Tensor ids = random_ids(50, 70);
  const model::Layout layout = model::make_layout(config_, std::vector<Span>{{0, 50, 0}});
  model::Choices choices;
  const auto run_with_choices = [&] { return model::forward_streams(model_.pass(layout, ids, nullptr, &choices)); };
  const Tensor recorded = run_with_choices();
  choices.experts = choices.entries = model::Choices::Mode::replay;
  EXPECT_TRUE(at::equal(run_with_choices(), recorded));
  choices.experts_TA[1] = std::get<0>((choices.experts_TA[1] + 1).remainder(config_.n_routed_experts).sort(1));
  EXPECT_FALSE(at::equal(run_with_choices(), recorded));
}

}  // namespace
}  // namespace test
