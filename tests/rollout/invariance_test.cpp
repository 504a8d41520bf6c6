// What an answer does not depend on, to the bit: its neighbours and their number, the order of requests, chunks of its
// prompt, slots, shared prefills, retractions, threads. And re-scoring an answer gives the log-probs that generation
// reported.
#include <gtest/gtest.h>

#include "base/parallel.h"
#include "rollout/tiny_engine.h"

namespace rollout {
namespace {

using test::joined;
using test::random_prompt;
using test::request;
using test::run_all;
using test::run_one;
using test::tiny_engine;
using test::tiny_settings;

constexpr double kTemperature = 0.7;

// Prompts of 1 to 140 tokens, answers of up to 19, each with its own seed.
Request nth_request(uint64_t n) {
  Request r = request(random_prompt(1 + static_cast<int64_t>(n * 37 % 140), n), 3 + static_cast<int64_t>(n % 17), 1, n);
  r.sampling.temperature = kTemperature;
  return r;
}

class Invariance : public testing::TestWithParam<const char*> {
 protected:
  EngineSettings settings(int64_t slots, int64_t chunk = 64) const {
    EngineSettings s = tiny_settings(GetParam());
    s.num_slots = slots;
    s.max_batch_tokens = std::max<int64_t>(256, slots);
    s.prefill_chunk = chunk;
    return s;
  }
  // The answer to one request in an engine of its own, with its prompt in one piece.
  const Output& alone(uint64_t n) {
    auto at = alone_.find(n);
    if (at == alone_.end()) at = alone_.emplace(n, run_one(*tiny_engine(settings(1, 256)), nth_request(n))).first;
    return at->second;
  }
  void expect_alone(const Output& got, uint64_t n, const std::string& what) {
    EXPECT_EQ(got.response_ids, alone(n).response_ids) << what << ", request " << n;
    EXPECT_EQ(got.log_probs, alone(n).log_probs) << what << ", request " << n;
  }

 private:
  std::map<uint64_t, Output> alone_;
};

TEST_P(Invariance, OverBatchesOfOneTo64) {
  for (const int64_t batch : {2, 3, 8, 17, 64}) {
    const auto engine = tiny_engine(settings(batch));
    for (int64_t i = 0; i < batch; ++i) engine->submit(nth_request(static_cast<uint64_t>(i)));
    const std::vector<Output> outputs = run_all(*engine);
    for (const int64_t i : {int64_t{0}, int64_t{1}, batch / 2, batch - 1})
      expect_alone(outputs[static_cast<size_t>(i)], static_cast<uint64_t>(i), "batch of " + std::to_string(batch));
  }
}

TEST_P(Invariance, OverChunksOfThePrompt) {
  for (const int64_t chunk : {1, 3, 64, 256}) {
    const auto engine = tiny_engine(settings(4, chunk));
    for (const uint64_t n : {3, 7, 11}) engine->submit(nth_request(n));
    const std::vector<Output> outputs = run_all(*engine);
    size_t next = 0;
    for (const uint64_t n : {3, 7, 11}) expect_alone(outputs[next++], n, "chunks of " + std::to_string(chunk));
  }
}

// Longer than any chunk, answered and scored again in chunks of which the last is not full.
TEST_P(Invariance, OverChunksOfALongPrompt) {
  Request r = request(random_prompt(600, 77), 8, 1, 77);
  r.sampling.temperature = kTemperature;
  const auto engine_of = [&](int64_t chunk) {
    EngineSettings s = settings(2, chunk);
    s.max_context = 640;
    s.max_batch_tokens = 640;
    return tiny_engine(s);
  };
  const Output whole = run_one(*engine_of(640), r);
  Request score;
  score.prompt_ids = joined(r.prompt_ids, whole.response_ids);
  score.score = true;
  score.input_logprob_temperature = kTemperature;
  for (const int64_t chunk : {3, 64, 256, 640}) {
    const Output got = run_one(*engine_of(chunk), r);
    EXPECT_EQ(got.response_ids, whole.response_ids) << "chunks of " << chunk;
    EXPECT_EQ(got.log_probs, whole.log_probs) << "chunks of " << chunk;
    const auto scored = run_one(*engine_of(chunk), score).prompt_log_probs;
    EXPECT_EQ(std::vector<float>(scored.end() - static_cast<std::ptrdiff_t>(whole.log_probs.size()), scored.end()),
              whole.log_probs)
        << "chunks of " << chunk;
  }
}

TEST_P(Invariance, OverTheOrderOfRequests) {
  const auto engine = tiny_engine(settings(3));
  for (uint64_t n = 10; n-- > 0;) engine->submit(nth_request(n));
  const std::vector<Output> outputs = run_all(*engine);
  for (uint64_t n = 0; n < 10; ++n) expect_alone(outputs[9 - n], n, "reversed");
}

TEST_P(Invariance, OverThreads) {
  const int before = base::num_threads();
  for (const int threads : {1, 2, 5}) {
    base::set_num_threads(threads);
    const auto engine = tiny_engine(settings(8));
    for (uint64_t n = 0; n < 8; ++n) engine->submit(nth_request(n));
    const std::vector<Output> outputs = run_all(*engine);
    for (uint64_t n = 0; n < 8; ++n) expect_alone(outputs[n], n, std::to_string(threads) + " threads");
  }
  base::set_num_threads(before);
}

TEST_P(Invariance, OverASharedPrefill) {
  Request group = nth_request(5);
  group.num_samples = 6;
  group.seeds = {5, 100, 101, 102, 103, 104};
  Request single = group;
  single.num_samples = 1;
  const auto engine = tiny_engine(settings(4));  // fewer slots than samples
  engine->submit(nth_request(2));
  engine->submit(group);
  const std::vector<Output> outputs = run_all(*engine);
  for (size_t i = 0; i < group.seeds.size(); ++i) {
    single.seeds = {group.seeds[i]};
    const Output want = run_one(*tiny_engine(settings(1)), single);
    EXPECT_EQ(outputs[1 + i].response_ids, want.response_ids) << i;
    EXPECT_EQ(outputs[1 + i].log_probs, want.log_probs) << i;
  }
}

TEST_P(Invariance, OverRetractions) {
  const auto engine = tiny_engine(settings(4));
  for (uint64_t n = 0; n < 4; ++n) engine->submit(nth_request(n));
  std::vector<Output> outputs;
  for (int step = 0; !engine->idle(); ++step) {
    if (step % 3 == 2) {
      engine->pause(PauseMode::retract);
      engine->resume();
    }
    for (Output& output : engine->step()) outputs.push_back(std::move(output));
    ASSERT_LT(step, 1000);
  }
  for (const Output& output : outputs) expect_alone(output, static_cast<uint64_t>(output.request), "retracted");
}

TEST_P(Invariance, ReScoringGivesWhatGenerationReported) {
  for (const int64_t chunk : {1, 3, 64, 256}) {
    const auto engine = tiny_engine(settings(8, chunk));
    for (uint64_t n = 0; n < 8; ++n) {
      Request score;
      score.prompt_ids = joined(nth_request(n).prompt_ids, alone(n).response_ids);
      score.score = true;
      score.input_logprob_temperature = kTemperature;
      engine->submit(score);
    }
    const std::vector<Output> outputs = run_all(*engine);
    for (uint64_t n = 0; n < 8; ++n) {
      const auto& scored = outputs[n].prompt_log_probs;
      const auto count = static_cast<std::ptrdiff_t>(alone(n).log_probs.size());
      EXPECT_EQ(std::vector<float>(scored.end() - count, scored.end()), alone(n).log_probs)
          << "request " << n << ", chunks of " << chunk;
    }
  }
}

TEST_P(Invariance, OverTheRecordingOfExperts) {
  const auto engine = tiny_engine(settings(4));
  Request group = nth_request(9);
  group.record_experts = true;
  group.num_samples = 3;
  group.seeds = {nth_request(9).seeds[0], 200, 201};
  engine->submit(group);
  const auto outputs = run_all(*engine);
  expect_alone(outputs[0], 9, "recording");
  const model::Config config = test::tiny_config();
  for (const Output& output : outputs) {
    const size_t tokens = group.prompt_ids.size() + output.response_ids.size() - 1;
    EXPECT_EQ(output.experts.size(),
              tokens * static_cast<size_t>(config.num_hidden_layers * config.num_experts_per_tok));
    const size_t prompt = group.prompt_ids.size() * 8;
    EXPECT_TRUE(std::equal(output.experts.begin(), output.experts.begin() + static_cast<std::ptrdiff_t>(prompt),
                           outputs[0].experts.begin()));
  }
}

INSTANTIATE_TEST_SUITE_P(Profiles, Invariance, testing::Values("f32", "bf16", "fp8", "fp8_fp4"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace rollout
