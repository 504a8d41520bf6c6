#include "rollout/engine.h"

#include <future>
#include <set>
#include <thread>

#include "base/expect_error.h"
#include "data/utf8.h"
#include "rollout/memory_plan.h"
#include "rollout/tiny_engine.h"

namespace rollout {
namespace {
using test::expect_error;
using test::expect_same;
using test::random_prompt;
using test::request;
using test::run_all;
using test::run_one;
using test::tiny_engine;
using test::tiny_settings;

std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  for (const int64_t length : {1, 2, 5, 8, 9, 17, 33, 64, 70}) {
    requests.push_back(
        request(random_prompt(length, static_cast<uint64_t>(length)), 12, 1, static_cast<uint64_t>(length)));
  }
  requests[3].sampling.temperature = 0.6;
  requests[4].sampling.temperature = 0;
  requests[5].sampling.top_p = 0.8;
  requests[6].sampling.top_k = 5;
  return requests;
}

std::vector<Output> outputs_of(const EngineSettings& settings, const std::vector<Request>& requests) {
  const auto engine = tiny_engine(settings);
  for (const Request& r : requests) engine->submit(r);
  return run_all(*engine);
}

TEST(Engine, LogProbsEqualThoseOfATrainingForward) {
  const std::vector<Request> requests = mixed_requests();
  const std::vector<Output> outputs = outputs_of(tiny_settings(), requests);
  ASSERT_EQ(outputs.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<int32_t>& prompt = requests[i].prompt_ids;
    const std::vector<float> whole =
        test::forward_log_probs(test::tiny_weights(), "f32", test::joined(prompt, outputs[i].response_ids),
                                requests[i].sampling.log_prob_temperature());
    // Case lp-06: the first log-prob comes from the logits of the last prompt token, and each token has one.
    test::expect_near(outputs[i].log_probs, {whole.begin() + static_cast<int64_t>(prompt.size()) - 1, whole.end()},
                      "prompt of " + std::to_string(prompt.size()));
    EXPECT_EQ(outputs[i].versions, std::vector<int64_t>(12, 1));
  }
}

TEST(Engine, NoiseIsKeyedBySeedAndAbsolutePosition) {
  // Decisions 9: whoever has the logits can draw the same tokens again.
  const Request r = request(random_prompt(23, 6), 30, 1, 77);
  const Output output = outputs_of(tiny_settings(), {r}).at(0);
  const at::Tensor logits =
      test::forward_logits(test::tiny_weights(), "f32", test::joined(r.prompt_ids, output.response_ids));
  RowSampler sampler;
  for (size_t i = 0; i < output.response_ids.size(); ++i) {
    const auto position = static_cast<int64_t>(23 + i);  // of the token that is drawn
    const std::span<const float> row(logits[position - 1].const_data_ptr<float>(), 64);
    EXPECT_EQ(sampler.draw(row, r.sampling, r.seeds[0], position)->id, output.response_ids[i]) << "token " << i;
  }
}

TEST(Engine, ABatchGivesEachRequestWhatItGetsAlone) {
  const std::vector<Request> requests = mixed_requests();
  const std::vector<Output> together = outputs_of(tiny_settings(), requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_same(together[i], outputs_of(tiny_settings(), {requests[i]})[0], "request " + std::to_string(i));
  }
}

TEST(Engine, PrefillInChunksOfAnySizeIsTheSame) {
  const std::vector<Request> requests = mixed_requests();
  EngineSettings settings = tiny_settings();
  settings.prefill_chunk = 200;
  const std::vector<Output> whole = outputs_of(settings, requests);
  for (const int64_t chunk : {1, 3, 7, 16, 33, 64}) {
    settings.prefill_chunk = chunk;
    const std::vector<Output> chunked = outputs_of(settings, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_same(chunked[i], whole[i], "chunk " + std::to_string(chunk) + ", request " + std::to_string(i));
    }
  }
}

TEST(Engine, ATightBudgetAndFewSlotsChangeNothingButTime) {
  const std::vector<Request> requests = mixed_requests();
  const std::vector<Output> wide = outputs_of(tiny_settings(), requests);
  EngineSettings settings = tiny_settings();
  settings.num_slots = 2;
  settings.max_batch_tokens = 5;
  const std::vector<Output> tight = outputs_of(settings, requests);
  for (size_t i = 0; i < requests.size(); ++i) expect_same(tight[i], wide[i], "request " + std::to_string(i));
}

TEST(Engine, SamplesThatShareAPrefillEqualSeparateRequests) {
  const Request group = request(random_prompt(37, 3), 10, 6);
  for (const int64_t num_slots : {8, 3, 1}) {
    EngineSettings settings = tiny_settings();
    settings.num_slots = num_slots;
    const std::vector<Output> shared = outputs_of(settings, {group});
    ASSERT_EQ(shared.size(), 6u);
    std::set<std::vector<int32_t>> different;
    for (size_t i = 0; i < 6; ++i) {
      Request single = group;
      single.num_samples = 1;
      single.seeds = {group.seeds[i]};
      expect_same(shared[i], outputs_of(tiny_settings(), {single})[0],
                  std::to_string(num_slots) + " slots, sample " + std::to_string(i));
      EXPECT_EQ(shared[i].seed, group.seeds[i]);
      different.insert(shared[i].response_ids);
    }
    EXPECT_EQ(different.size(), 6u);  // case rs-13
  }
}

TEST(Engine, ASharedPromptIsComputedOnce) {
  const auto engine = tiny_engine();
  engine->submit(request(random_prompt(40, 3), 5, 8));
  run_all(*engine);
  EXPECT_EQ(engine->health().num_computed_tokens, 40 + 8 * 4);
  EXPECT_EQ(engine->health().num_new_tokens, 8 * 5);
}

TEST(Engine, ASeedGivesTheSameAnswerUnderAnyLoad) {
  const Request wanted = request(random_prompt(20, 4), 16, 2, 99);
  const std::vector<Output> alone = outputs_of(tiny_settings(), {wanted});
  const auto engine = tiny_engine();
  for (uint64_t i = 0; i < 5; ++i) engine->submit(request(random_prompt(11 + static_cast<int64_t>(i), i), 7, 2, i));
  for (int i = 0; i < 4; ++i) engine->step();
  const int64_t id = engine->submit(wanted);
  for (const Output& output : run_all(*engine)) {
    if (output.request == id) expect_same(output, alone[static_cast<size_t>(output.index)], "under load");
  }
}

TEST(Engine, RequestsWithoutSeedsGetThemRecordedAndTheyReproduceTheAnswer) {
  Request free = request(random_prompt(9, 1), 8, 3);
  free.seeds.clear();
  const std::vector<Output> drawn = outputs_of(tiny_settings(), {free, free});
  std::set<uint64_t> seeds;
  for (const Output& output : drawn) seeds.insert(output.seed);
  EXPECT_EQ(seeds.size(), 6u);
  Request again = free;
  again.seeds = {drawn[3].seed, drawn[4].seed, drawn[5].seed};
  const std::vector<Output> repeated = outputs_of(tiny_settings(), {again});
  for (size_t i = 0; i < 3; ++i) expect_same(repeated[i], drawn[3 + i], "sample " + std::to_string(i));
}

TEST(Engine, AStopTextEndsTheAnswerAcrossTokens) {
  // Case rs-10: ids and log-probs keep every token, the text is cut and says so.
  const auto engine = tiny_engine();
  Request r = request(random_prompt(12, 8), 20);
  const Output whole = run_one(*engine, r);
  const std::string stop = whole.text.substr(9, 4);  // second half of token 4 to first half of token 6
  ASSERT_EQ(whole.text.find(stop), 9u);
  r.sampling.stop = {"never", stop};
  const Output cut = run_one(*engine, r);
  EXPECT_EQ(cut.ended, Ended::stop_string);
  EXPECT_EQ(cut.matched_text, stop);
  EXPECT_EQ(cut.text, whole.text.substr(0, 9));
  EXPECT_TRUE(cut.text_cut);
  EXPECT_EQ(cut.response_ids, std::vector<int32_t>(whole.response_ids.begin(), whole.response_ids.begin() + 7));
  EXPECT_EQ(cut.log_probs.size(), 7u);
  EXPECT_EQ(cut.versions.size(), 7u);
  r.sampling.no_stop_trim = true;
  const Output kept = run_one(*engine, r);
  EXPECT_EQ(kept.text, whole.text.substr(0, 14));  // decode(response_ids)
  EXPECT_FALSE(kept.text_cut);
}

TEST(Engine, TextIsValidAlsoWhenTokensSplitOrBreakCharacters) {
  const auto bytes_of = [](int32_t id) -> std::string_view {
    return id % 3 == 0 ? "\xe2\x82" : id % 3 == 1 ? "\xac" : "a";
  };
  Engine engine(test::tiny_config(), tiny_settings(), {bytes_of, {}});
  test::publish(engine, test::tiny_weights(), 1);
  for (uint64_t seed = 0; seed < 8; ++seed) engine.submit(request(random_prompt(5, seed), 40, 1, seed));
  for (const Output& output : run_all(engine)) {
    std::string bytes, text;
    for (const int32_t id : output.response_ids) bytes += bytes_of(id);
    data::append_lossy(bytes, /*at_end=*/true, text);
    EXPECT_EQ(output.text, text);
    EXPECT_EQ(data::find_invalid_utf8(output.text), output.text.size());
  }
}

TEST(Engine, AStopTokenEndsTheAnswerAndIsPartOfIt) {
  const auto engine = tiny_engine();
  Request r = request(random_prompt(12, 8), 20);
  const Output whole = run_one(*engine, r);
  const int32_t stop = whole.response_ids[6];
  const auto first = std::find(whole.response_ids.begin(), whole.response_ids.end(), stop);
  r.sampling.stop_token_ids = {stop};
  const Output ended = run_one(*engine, r);
  EXPECT_EQ(ended.ended, Ended::stop_token);
  EXPECT_EQ(ended.matched_token, stop);
  EXPECT_EQ(ended.response_ids, std::vector<int32_t>(whole.response_ids.begin(), first + 1));
  EXPECT_EQ(ended.log_probs.size(), ended.response_ids.size());
  EXPECT_EQ(ended.text, whole.text.substr(0, 2 * static_cast<size_t>(first - whole.response_ids.begin())));
  EXPECT_EQ(finish_reason(ended.ended), data::FinishReason::stop);
}

TEST(Engine, EndOfSequenceEndsTheAnswerUnlessIgnored) {
  model::Weights masters = test::tiny_weights().clone();
  masters.head.select(0, 1).copy_(3 * masters.head.select(0, 1));  // a likely end of sequence
  const auto engine = tiny_engine();
  test::publish(*engine, masters, 2);
  Request r = request(random_prompt(12, 8), 60);
  const Output ignored = run_one(*engine, r);
  EXPECT_EQ(ignored.response_ids.size(), 60u);
  const auto first = std::find(ignored.response_ids.begin(), ignored.response_ids.end(), 1);
  ASSERT_NE(first, ignored.response_ids.end());
  r.sampling.ignore_eos = false;
  const Output ended = run_one(*engine, r);
  EXPECT_EQ(ended.ended, Ended::stop_token);
  EXPECT_EQ(ended.response_ids, std::vector<int32_t>(ignored.response_ids.begin(), first + 1));
}

TEST(Engine, LengthLimitsEndTheAnswerAndNameTheLimit) {
  const auto engine = tiny_engine();
  const Output by_request = run_one(*engine, request(random_prompt(10, 1), 6));
  EXPECT_EQ(by_request.ended, Ended::max_new_tokens);
  EXPECT_EQ(by_request.response_ids.size(), 6u);
  const Output by_context = run_one(*engine, request(random_prompt(150, 1), 50));
  EXPECT_EQ(by_context.ended, Ended::context);
  EXPECT_EQ(by_context.response_ids.size(), 10u);
  EXPECT_EQ(run_one(*engine, request(random_prompt(159, 1), 50)).response_ids.size(), 1u);
  EXPECT_EQ(finish_reason(by_context.ended), data::FinishReason::length);
}

TEST(Engine, MoreRequestsThanSlotsWait) {
  EngineSettings settings = tiny_settings();
  settings.num_slots = 2;
  const auto engine = tiny_engine(settings);
  for (uint64_t i = 0; i < 7; ++i) engine->submit(request(random_prompt(6, i), 4, 1, i));
  engine->step();
  EXPECT_EQ(engine->health().num_running, 2);
  EXPECT_EQ(engine->health().num_unfinished, 7);
  EXPECT_EQ(run_all(*engine).size(), 7u);
  EXPECT_EQ(engine->health().num_free_slots, 2);
}

TEST(Engine, CancelReturnsWhatThereIsAndFreesTheSlots) {
  EngineSettings settings = tiny_settings();
  settings.num_slots = 2;
  const auto engine = tiny_engine(settings);
  const Request waiting = request(random_prompt(6, 2), 4, 1, 2);
  const int64_t first = engine->submit(request(random_prompt(6, 1), 100, 2, 1));
  const int64_t second = engine->submit(waiting);
  for (int i = 0; i < 3; ++i) engine->step();
  engine->cancel(first);
  engine->cancel(12345);
  std::vector<Output> outputs = engine->step();
  ASSERT_EQ(outputs.size(), 2u);
  for (const Output& output : outputs) {
    EXPECT_EQ(output.request, first);
    EXPECT_EQ(output.ended, Ended::cancelled);
    EXPECT_EQ(output.response_ids.size(), 3u);
    EXPECT_EQ(output.log_probs.size(), 3u);
  }
  outputs = run_all(*engine);
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].request, second);
  expect_same(outputs[0], outputs_of(tiny_settings(), {waiting})[0], "in a slot that another used");
}

TEST(Engine, ACancelThatComesBeforeTheFirstStepCounts) {
  const auto engine = tiny_engine();
  engine->cancel(engine->submit(request(random_prompt(6, 1), 100)));
  const std::vector<Output> outputs = engine->step();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].ended, Ended::cancelled);
  EXPECT_TRUE(engine->idle());
}

TEST(Engine, BadRequestsAreRefusedWithTheReason) {
  const auto engine = tiny_engine();
  const auto refused = [&](const std::vector<std::string>& parts, auto change) {
    Request r = request({5, 6, 7}, 4);
    change(r);
    expect_error(base::Code::invalid_argument, parts, [&] { engine->submit(r); });
  };
  refused({"empty"}, [](Request& r) { r.prompt_ids.clear(); });
  refused({"token 1", "id -1", "0..63"}, [](Request& r) { r.prompt_ids[1] = -1; });
  refused({"token 2", "id 64", "0..63"}, [](Request& r) { r.prompt_ids[2] = 64; });
  refused({"160 tokens", "max_context = 160", "159"}, [](Request& r) { r.prompt_ids = random_prompt(160, 1); });
  refused({"temperature is nan"}, [](Request& r) { r.sampling.temperature = NAN; });
  refused({"stop_token_ids holds 151645"}, [](Request& r) { r.sampling.stop_token_ids = {151645}; });  // case rs-03
  refused({"num_samples is 0"}, [](Request& r) { r.num_samples = 0, r.seeds.clear(); });
  refused({"2 seeds for 1"}, [](Request& r) { r.seeds = {1, 2}; });
  refused({"seed 42"}, [](Request& r) { r.num_samples = 2, r.seeds = {42, 42}; });  // case rs-13
  EXPECT_TRUE(engine->idle());
}

TEST(Engine, StopTextsNeedATokenizer) {
  Engine engine(test::tiny_config(), tiny_settings());
  Request r = request({5, 6, 7}, 4);
  r.sampling.stop = {"x"};
  expect_error(base::Code::invalid_argument, {"tokenizer"}, [&] { engine.submit(r); });
}

TEST(Engine, SettingsThatCannotWorkAreRefused) {
  EngineSettings settings = tiny_settings();
  settings.max_batch_tokens = 7;
  expect_error(base::Code::invalid_argument, {"max_batch_tokens is 7", "num_slots is 8"},
               [&] { Engine(test::tiny_config(), settings); });
  settings = tiny_settings();
  settings.max_context = 5000;
  expect_error(base::Code::invalid_argument, {"max_context is 5000", "4096"},
               [&] { Engine(test::tiny_config(), settings); });
}

TEST(Engine, IdsWithoutATokenAreNeitherSampledNorAccepted) {
  Engine engine(test::tiny_config(), tiny_settings(), {test::bytes_of, {40, 41, 42, 63, 70}});
  test::publish(engine, test::tiny_weights(), 1);
  expect_error(base::Code::invalid_argument, {"id 41"}, [&] { engine.submit(request({5, 41}, 4)); });
  for (uint64_t i = 0; i < 8; ++i) engine.submit(request({5, 6}, 100, 1, i));
  for (const Output& output : run_all(engine)) {
    for (const int32_t id : output.response_ids) EXPECT_TRUE(id < 40 || (id > 42 && id < 63)) << id;
  }
}

TEST(Engine, APromptWithNonFiniteLogitsFailsAlone) {
  model::Weights masters = test::tiny_weights().clone();
  masters.embed.select(0, 50).fill_(3e38f);  // finite, but its square is not
  const auto engine = tiny_engine();
  test::publish(*engine, masters, 2);
  std::vector<Request> good;
  for (uint64_t i = 0; i < 4; ++i) {
    good.push_back(request(random_prompt(6, i), 5, 1, i));
    std::replace(good.back().prompt_ids.begin(), good.back().prompt_ids.end(), 50, 51);
    good.back().sampling.top_k = 1;
  }
  std::vector<Output> alone;
  for (const Request& r : good) alone.push_back(run_one(*engine, r));
  const int64_t bad = engine->submit(request({50, 7, 50}, 5));
  for (const Request& r : good) engine->submit(r);
  std::vector<Output> outputs = run_all(*engine);
  ASSERT_EQ(outputs.size(), 5u);
  EXPECT_EQ(outputs[0].request, bad);
  EXPECT_EQ(outputs[0].ended, Ended::not_finite);
  EXPECT_NE(outputs[0].error.find("version 2"), std::string::npos) << outputs[0].error;
  for (size_t i = 0; i < 4; ++i) expect_same(outputs[i + 1], alone[i], "beside it, request " + std::to_string(i));
  for (size_t i = 0; i < 4; ++i)
    expect_same(run_one(*engine, good[i]), alone[i], "after it, request " + std::to_string(i));
}

TEST(Engine, PausedEnginesQueueRequestsAndServeCancels) {
  for (const PauseMode mode : {PauseMode::abort, PauseMode::retract, PauseMode::in_place}) {
    const auto engine = tiny_engine();
    engine->pause(mode);
    const int64_t first = engine->submit(request(random_prompt(6, 1), 4));
    engine->submit(request(random_prompt(6, 2), 4));
    EXPECT_TRUE(engine->step().empty());
    EXPECT_EQ(engine->health().num_new_tokens, 0);
    EXPECT_TRUE(engine->health().paused);
    engine->cancel(first);
    EXPECT_EQ(engine->step().size(), 1u);
    engine->resume();
    engine->resume();
    EXPECT_EQ(run_all(*engine).size(), 1u);
  }
}

TEST(Engine, PauseByAbortEndsEverythingWithWhatThereIs) {
  const auto engine = tiny_engine();
  engine->submit(request(random_prompt(6, 1), 50, 3));
  engine->step(), engine->step();
  engine->pause(PauseMode::abort);
  const std::vector<Output> outputs = engine->step();
  ASSERT_EQ(outputs.size(), 3u);
  for (const Output& output : outputs) {
    EXPECT_EQ(output.ended, Ended::cancelled);
    EXPECT_EQ(output.response_ids.size(), 2u);
  }
  EXPECT_TRUE(engine->idle());
  EXPECT_EQ(engine->health().num_free_slots, 8);
}

TEST(Engine, RetractionGoesOnWithTheTokensItHas) {
  // Case rs-06: the answer's budget counts the tokens from before.
  const Request r = request(random_prompt(19, 1), 30, 3);
  const std::vector<Output> undisturbed = outputs_of(tiny_settings(), {r});
  for (const PauseMode mode : {PauseMode::retract, PauseMode::in_place}) {
    const auto engine = tiny_engine();
    engine->submit(r);
    for (int i = 0; i < 10; ++i) engine->step();
    engine->pause(mode);
    EXPECT_EQ(engine->health().num_free_slots, mode == PauseMode::retract ? 8 : 5);
    engine->resume();
    const std::vector<Output> outputs = run_all(*engine);
    for (size_t i = 0; i < 3; ++i) {
      expect_same(outputs[i], undisturbed[i], "sample " + std::to_string(i));
      EXPECT_EQ(outputs[i].num_retractions, mode == PauseMode::retract ? 1 : 0);
      EXPECT_FALSE(outputs[i].mixed_cache);
    }
  }
}

TEST(Engine, HealthSubmitAndCancelDoNotWaitForAStep) {
  // Case rs-18.
  std::promise<void> inside, go_on;
  std::shared_future<void> may_go = go_on.get_future().share();
  bool first = true;
  const auto slow = [&](int32_t id) {
    if (std::exchange(first, false)) inside.set_value(), may_go.wait();
    return test::bytes_of(id);
  };
  Engine engine(test::tiny_config(), tiny_settings(), {slow, {}});
  test::publish(engine, test::tiny_weights(), 1);
  const int64_t id = engine.submit(request(random_prompt(6, 1), 4));
  std::thread stepper([&] { engine.step(); });
  inside.get_future().wait();
  EXPECT_EQ(engine.health().num_unfinished, 1);
  engine.submit(request(random_prompt(6, 2), 4));
  engine.cancel(id);
  EXPECT_EQ(engine.health().num_unfinished, 2);
  go_on.set_value();
  stepper.join();
  EXPECT_EQ(run_all(engine).size(), 2u);
}

TEST(Engine, ScoresAreThoseOfATrainingForward) {
  for (const int64_t chunk : {5, 64}) {
    EngineSettings settings = tiny_settings();
    settings.prefill_chunk = chunk;
    const auto engine = tiny_engine(settings);
    std::vector<Request> requests;
    for (const int64_t length : {2, 9, 40, 160}) {
      Request r;
      r.score = true;
      r.prompt_ids = random_prompt(length, static_cast<uint64_t>(length));
      r.input_logprob_temperature = length == 9 ? 0.6 : 1.0;
      engine->submit(r);
      requests.push_back(r);
    }
    engine->submit(request(random_prompt(30, 1), 9, 2));  // beside generation
    const std::vector<Output> outputs = run_all(*engine);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(outputs[i].ended, Ended::scored);
      EXPECT_EQ(outputs[i].version, 1);
      EXPECT_TRUE(outputs[i].response_ids.empty());
      test::expect_near(outputs[i].prompt_log_probs,
                        test::forward_log_probs(test::tiny_weights(), "f32", requests[i].prompt_ids,
                                                requests[i].input_logprob_temperature),
                        "length " + std::to_string(requests[i].prompt_ids.size()));
    }
  }
}

TEST(Engine, ScoringAnAnswerAtItsTemperatureRepeatsItsLogProbs) {
  // Cases lp-03, lp-10.
  const auto engine = tiny_engine();
  for (const double temperature : {0.5, 0.6, 1.0}) {
    Request r = request(random_prompt(14, 2), 25);
    r.sampling.temperature = temperature;
    const Output answer = run_one(*engine, r);
    Request score;
    score.score = true;
    score.prompt_ids = test::joined(r.prompt_ids, answer.response_ids);
    score.input_logprob_temperature = temperature;
    const std::vector<float> again = run_one(*engine, score).prompt_log_probs;
    test::expect_near({again.begin() + 13, again.end()}, answer.log_probs,
                      "temperature " + std::to_string(temperature));
  }
}

TEST(Engine, AScoreOfOneTokenIsEmptyAndBadScoresAreRefused) {
  const auto engine = tiny_engine();
  Request r;
  r.score = true;
  r.prompt_ids = {5};
  const Output output = run_one(*engine, r);
  EXPECT_EQ(output.ended, Ended::scored);
  EXPECT_TRUE(output.prompt_log_probs.empty());
  r.input_logprob_temperature = 0;
  expect_error(base::Code::invalid_argument, {"input_logprob_temperature is 0"}, [&] { engine->submit(r); });
  r.input_logprob_temperature = 1;
  r.num_samples = 2;
  expect_error(base::Code::invalid_argument, {"one sample"}, [&] { engine->submit(r); });
}

TEST(Engine, EveryProfileGenerates) {
  for (const std::string profile : {"f32", "bf16", "fp8", "fp8_fp4"}) {
    const auto engine = tiny_engine(tiny_settings(profile));
    engine->submit(request(random_prompt(40, 1), 20, 4));
    for (const Output& output : run_all(*engine)) {
      EXPECT_EQ(output.response_ids.size(), 20u) << profile;
      for (const float log_prob : output.log_probs) EXPECT_TRUE(log_prob <= 0 && log_prob > -50) << profile;
    }
  }
}

TEST(MemoryPlan, CountsWhatTheEngineHolds) {
  for (const std::string profile : {"f32", "fp8", "fp8_fp4"}) {
    const EngineSettings settings = tiny_settings(profile);
    const auto engine = tiny_engine(settings);
    const int64_t held = engine->engine_weights().serving().size_bytes();
    const MemoryPlan plan = plan_memory(test::tiny_config(), settings);
    EXPECT_EQ(plan.weights_bytes, held) << profile;
    EXPECT_EQ(plan.update_bytes, held) << profile;
    EXPECT_EQ(plan.cache_bytes, 8 * model::Cache::bytes_per_slot(test::tiny_config(), 160));
    EXPECT_GT(plan.pass_bytes, 0);
  }
}

}  // namespace
}  // namespace rollout
