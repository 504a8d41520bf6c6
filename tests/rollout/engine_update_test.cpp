#include <atomic>
#include <thread>

#include "base/expect_error.h"
#include "model/run_values.h"
#include "rollout/engine.h"
#include "rollout/tiny_engine.h"
#include "weight_sync/session.h"

namespace rollout {
namespace {
using test::expect_error;
using test::expect_same;
using test::publish;
using test::random_prompt;
using test::request;
using test::run_all;
using test::run_one;
using test::tiny_engine;
using test::tiny_settings;
using test::tiny_weights;

const std::vector<std::string> kProfiles = {"f32", "bf16", "fp8", "fp8_fp4"};

Request greedy(int64_t prompt_length, int64_t max_new_tokens, uint64_t seed = 1) {
  Request r = request(random_prompt(prompt_length, seed), max_new_tokens);
  r.sampling.temperature = 0;
  return r;
}

// Every value that the engine computes with against a fresh conversion of the published values, byte for byte.
void expect_serves(const Engine& engine, const model::Weights& masters, const std::string& what) {
  const auto served = test::values_of(engine.engine_weights().serving());
  const auto fresh = test::values_of(model::RunWeights::trainable(masters, engine.engine_weights().profile()));
  EXPECT_EQ(served.size(), fresh.size());
  for (const auto& [name, value] : fresh) EXPECT_TRUE(at::equal(served.at(name), value)) << what << ": " << name;
}

// A session that the test drives by hand.
class Update {
 public:
  Update(Engine& engine, const model::Weights& masters)
      : session(engine.weights()), source(masters, weight_sync::publish_as(engine.engine_weights().profile())) {}

  weight_sync::Bucket bucket() {
    weight_sync::Bucket all;
    source.each([&](const std::string& name, const tensor::Tensor& value) { all.push_back({name, value.clone()}); });
    return all;
  }

  weight_sync::Session session;
  weight_sync::WeightsSource source;
};

TEST(EngineUpdate, AfterAPublishTheEngineServesAFreshQuantisationOfThePublishedValues) {
  // Case wu-03: after every one of several updates, for every profile and setting.
  for (const std::string& profile : kProfiles) {
    for (const std::string on_update : {"retract", "continue"}) {
      EngineSettings settings = tiny_settings(profile);
      settings.on_update = on_update;
      const auto engine = tiny_engine(settings);
      for (const uint64_t seed : {1, 2, 3}) {
        const auto version = static_cast<int64_t>(seed) + 1;
        publish(*engine, tiny_weights(seed), version);
        const std::string what = profile + ", seed " + std::to_string(seed);
        EXPECT_EQ(engine->health().version, version);
        expect_serves(*engine, tiny_weights(seed), what);
        EXPECT_EQ(run_one(*engine, greedy(9, 3)).versions, std::vector<int64_t>(3, version));
      }
    }
  }
}

TEST(EngineUpdate, PublishingTwiceChangesNothing) {
  for (const std::string& profile : kProfiles) {
    const auto engine = tiny_engine(tiny_settings(profile));
    const Output before = run_one(*engine, greedy(33, 20));
    publish(*engine, tiny_weights(), 2);
    expect_serves(*engine, tiny_weights(), profile);
    const Output after = run_one(*engine, greedy(33, 20));
    EXPECT_EQ(after.response_ids, before.response_ids) << profile;
    EXPECT_EQ(after.log_probs, before.log_probs) << profile;
  }
}

TEST(EngineUpdate, AnAbortLeavesTheOldVersionServing) {
  const auto engine = tiny_engine(tiny_settings("fp8"));
  const Output before = run_one(*engine, greedy(33, 20));
  for (const size_t num_written : {size_t{0}, size_t{17}, size_t{1000000}}) {
    Update update(*engine, tiny_weights(2));
    update.session.begin(2, update.source.manifest());
    weight_sync::Bucket bucket = update.bucket();
    if (num_written < bucket.size()) bucket.resize(num_written);
    update.session.write(bucket);
    if (num_written > bucket.size()) update.session.end();
    update.session.abort();
    EXPECT_EQ(engine->health().version, 1);
    expect_serves(*engine, tiny_weights(1), "after an abort");
    EXPECT_EQ(run_one(*engine, greedy(33, 20)).log_probs, before.log_probs);
  }
  publish(*engine, tiny_weights(2), 2);
  expect_serves(*engine, tiny_weights(2), "the update after the aborts");
}

TEST(EngineUpdate, AFaultyUpdateIsRefusedWholeAndTheOldWeightsServeOn) {
  const auto engine = tiny_engine(tiny_settings("fp8"));
  const std::string name = "layers.1.attn.wq_a.weight";
  const auto with = [&](const std::vector<std::string>& parts, auto spoil) {
    Update update(*engine, tiny_weights(2));
    weight_sync::Manifest manifest = update.source.manifest();
    weight_sync::Bucket bucket = update.bucket();
    spoil(manifest, bucket);
    EXPECT_THROW(
        {
          try {
            update.session.begin(2, manifest);
            update.session.write(bucket);
            update.session.end();
            update.session.commit();
          } catch (const base::Error& error) {
            for (const std::string& part : parts)
              EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
            throw;
          }
        },
        base::Error);
    EXPECT_EQ(engine->health().version, 1);
    expect_serves(*engine, tiny_weights(1), parts[0]);
  };
  const auto entry = [&](weight_sync::Manifest& m) {
    return std::find_if(m.tensors.begin(), m.tensors.end(), [&](const auto& t) { return t.spec.name == name; });
  };
  with({name, "31", "32"}, [&](auto& manifest, auto&) { entry(manifest)->spec.shape[1] = 31; });  // case wu-01
  with({"layers.0.attn.nope.weight"}, [&](auto& manifest, auto&) {                                // case wu-02
    weight_sync::ManifestEntry extra = *entry(manifest);
    extra.spec.name = "layers.0.attn.nope.weight";
    manifest.tensors.push_back(extra);
  });
  with({name}, [&](auto& manifest, auto&) { manifest.tensors.erase(entry(manifest)); });  // case wu-02
  with({"norm.weight"}, [&](auto&, auto& bucket) {                                        // a changed byte
    for (auto& item : bucket) {
      if (item.name == "norm.weight") item.value[0] = 2;
    }
  });
  with({"embed.weight"},
       [&](auto&, auto& bucket) { bucket.pop_back(), bucket.erase(bucket.begin()); });  // not all of it
}

TEST(EngineUpdate, ANonFiniteTensorIsRefusedByName) {
  // Case wu-13.
  const auto engine = tiny_engine();
  model::Weights bad = tiny_weights(2).clone();
  bad.norm[3] = NAN;
  EXPECT_THROW(
      {
        try {
          publish(*engine, bad, 2);
        } catch (const base::Error& error) {
          EXPECT_NE(std::string(error.what()).find("norm.weight"), std::string::npos) << error.what();
          throw;
        }
      },
      base::Error);
  expect_serves(*engine, tiny_weights(1), "after the refusal");
}

TEST(EngineUpdate, StridedTensorsArriveAsTheirLogicalRows) {
  // Case wu-10.
  const auto engine = tiny_engine(tiny_settings("fp8"));
  model::Weights strided = tiny_weights(2).clone();
  strided.layers[0].attn.wq_a = strided.layers[0].attn.wq_a.t().contiguous().t();
  ASSERT_FALSE(strided.layers[0].attn.wq_a.is_contiguous());
  publish(*engine, strided, 2);
  expect_serves(*engine, tiny_weights(2), "strided source");
}

TEST(EngineUpdate, TheSecondOfTwoUpdatesAtOnceIsRefused) {
  // Case wu-14.
  const auto engine = tiny_engine();
  Update first(*engine, tiny_weights(2)), second(*engine, tiny_weights(3));
  first.session.begin(2, first.source.manifest());
  expect_error(base::Code::unavailable, {}, [&] { second.session.begin(3, second.source.manifest()); });
  first.session.write(first.bucket());
  first.session.end();
  first.session.commit();
  expect_serves(*engine, tiny_weights(2), "the first");
}

TEST(EngineUpdate, RequestsWaitForTheFirstWholeVersion) {
  // Case wu-06.
  Engine engine(test::tiny_config(), tiny_settings());
  engine.submit(greedy(9, 4));
  EXPECT_TRUE(engine.step().empty());
  EXPECT_EQ(engine.health().version, weight_sync::kNoVersion);
  Update update(engine, tiny_weights(2));
  update.session.begin(7, update.source.manifest());
  weight_sync::Bucket all = update.bucket(), last = {all.back()};
  all.pop_back();
  update.session.write(all);
  EXPECT_TRUE(engine.step().empty());
  EXPECT_EQ(engine.health().num_new_tokens, 0);
  update.session.write(last);
  update.session.end();
  EXPECT_TRUE(engine.step().empty());
  update.session.commit();
  const std::vector<Output> outputs = run_all(engine);
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].versions, std::vector<int64_t>(4, 7));
}

TEST(EngineUpdate, AnswersAfterAnUpdateEqualThoseOfAFreshEngine) {
  // Case wu-05.
  for (const std::string on_update : {"retract", "continue"}) {
    EngineSettings settings = tiny_settings("fp8");
    settings.on_update = on_update;
    const auto fresh = tiny_engine(settings);
    publish(*fresh, tiny_weights(2), 2);
    const Output want = run_one(*fresh, greedy(37, 20));
    const auto engine = tiny_engine(settings);
    run_one(*engine, greedy(37, 20));
    publish(*engine, tiny_weights(2), 2);
    const Output got = run_one(*engine, greedy(37, 20));
    EXPECT_EQ(got.response_ids, want.response_ids);
    EXPECT_EQ(got.log_probs, want.log_probs);
    EXPECT_FALSE(got.mixed_cache);
  }
}

// Log-probs of an answer's tokens from `first` on, by a whole forward with these weights.
std::vector<float> tail_log_probs(const model::Weights& masters, const Request& r, const Output& output, size_t first) {
  const std::vector<float> whole = test::forward_log_probs(
      masters, "f32", test::joined(r.prompt_ids, output.response_ids), r.sampling.log_prob_temperature());
  return {whole.begin() + static_cast<int64_t>(r.prompt_ids.size() + first) - 1, whole.end()};
}

TEST(EngineUpdate, RetractedAnswersGoOnAsIfTheNewWeightsHadReadEverything) {
  const auto engine = tiny_engine();
  const Request r = request(random_prompt(21, 4), 16, 3);
  engine->submit(r);
  for (int i = 0; i < 7; ++i) engine->step();
  publish(*engine, tiny_weights(2), 2);
  for (const Output& output : run_all(*engine)) {
    ASSERT_EQ(output.response_ids.size(), 16u);
    const size_t old = static_cast<size_t>(std::count(output.versions.begin(), output.versions.end(), 1));
    EXPECT_EQ(old, 7u);
    EXPECT_EQ(output.versions.back(), 2);
    EXPECT_TRUE(std::is_sorted(output.versions.begin(), output.versions.end()));
    EXPECT_EQ(output.num_retractions, 1);
    EXPECT_FALSE(output.mixed_cache);
    const std::vector<float> before = tail_log_probs(tiny_weights(1), r, output, 0);
    test::expect_near({output.log_probs.begin(), output.log_probs.begin() + 7}, {before.begin(), before.begin() + 7},
                      "before");
    test::expect_near({output.log_probs.begin() + 7, output.log_probs.end()},
                      tail_log_probs(tiny_weights(2), r, output, 7), "after");
  }
}

TEST(EngineUpdate, ContinuedAnswersKeepTheirCacheAndSaySo) {
  EngineSettings settings = tiny_settings();
  settings.on_update = "continue";
  const auto engine = tiny_engine(settings);
  const Request r = request(random_prompt(21, 4), 16);
  engine->submit(r);
  for (int i = 0; i < 7; ++i) engine->step();
  publish(*engine, tiny_weights(2), 2);
  EXPECT_EQ(engine->health().num_running, 1);
  const Output output = run_all(*engine).at(0);
  EXPECT_EQ(std::count(output.versions.begin(), output.versions.end(), 2), 9);
  EXPECT_TRUE(output.mixed_cache);
  EXPECT_EQ(output.num_retractions, 0);
  // The first new token still came from keys of the old weights: not what the new weights alone would say.
  EXPECT_GT(std::abs(output.log_probs[7] - tail_log_probs(tiny_weights(2), r, output, 7)[0]), 10 * test::kSameLogProb);
}

TEST(EngineUpdate, AMemberThatStartsAfterAnUpdateDoesNotForkTheOldState) {
  // Case wu-05 inside a group: two slots, so the third sample starts after the update, from its own prefill.
  EngineSettings settings = tiny_settings();
  settings.on_update = "continue";
  settings.num_slots = 2;
  const auto engine = tiny_engine(settings);
  const Request r = request(random_prompt(21, 4), 16, 3);
  engine->submit(r);
  for (int i = 0; i < 4; ++i) engine->step();
  publish(*engine, tiny_weights(2), 2);
  const std::vector<Output> outputs = run_all(*engine);
  EXPECT_TRUE(outputs[0].mixed_cache);
  EXPECT_TRUE(outputs[1].mixed_cache);
  EXPECT_FALSE(outputs[2].mixed_cache);
  EXPECT_EQ(std::count(outputs[2].versions.begin(), outputs[2].versions.end(), 1),
            1);  // its first token was drawn with the others'
  test::expect_near({outputs[2].log_probs.begin() + 1, outputs[2].log_probs.end()},
                    tail_log_probs(tiny_weights(2), r, outputs[2], 1), "the third sample");
}

TEST(EngineUpdate, AScoreIsWhollyOfOneVersion) {
  for (const std::string on_update : {"retract", "continue"}) {
    EngineSettings settings = tiny_settings();
    settings.on_update = on_update;
    settings.prefill_chunk = 8;
    const auto engine = tiny_engine(settings);
    Request r;
    r.score = true;
    r.prompt_ids = random_prompt(30, 6);
    engine->submit(r);
    engine->step(), engine->step();
    publish(*engine, tiny_weights(2), 2);
    const Output output = run_all(*engine).at(0);
    EXPECT_EQ(output.version, 2);
    test::expect_near(output.prompt_log_probs, test::forward_log_probs(tiny_weights(2), "f32", r.prompt_ids, 1.0),
                      on_update);
  }
}

TEST(EngineUpdate, APauseInPlaceKeepsCachesOverACommit) {
  const auto engine = tiny_engine();  // on_update is retract
  engine->submit(request(random_prompt(21, 4), 16));
  for (int i = 0; i < 7; ++i) engine->step();
  engine->pause(PauseMode::in_place);
  publish(*engine, tiny_weights(2), 2);
  EXPECT_EQ(engine->health().num_running, 1);
  engine->resume();
  EXPECT_TRUE(run_all(*engine).at(0).mixed_cache);
}

TEST(EngineUpdate, UpdatesFromAnotherThreadTakeEffectBetweenSteps) {
  const auto engine = tiny_engine();
  std::atomic<bool> stop = false;
  std::vector<Output> outputs;
  std::thread stepper([&] {
    for (uint64_t i = 0; !stop || !engine->idle(); ++i) {
      if (!stop && engine->health().num_unfinished < 6) engine->submit(request(random_prompt(10, i), 12, 2, i));
      for (Output& output : engine->step()) outputs.push_back(std::move(output));
    }
  });
  for (int64_t version = 2; version <= 6; ++version)
    publish(*engine, tiny_weights(static_cast<uint64_t>(version % 2)), version);
  stop = true;
  stepper.join();
  EXPECT_EQ(engine->health().version, 6);
  EXPECT_GT(outputs.size(), 0u);
  std::map<int64_t, size_t> by_version;
  for (const Output& output : outputs) {
    EXPECT_EQ(output.response_ids.size(), 12u);
    EXPECT_TRUE(std::is_sorted(output.versions.begin(), output.versions.end()));
    for (const int64_t version : output.versions) ++by_version[version];
  }
  EXPECT_GE(by_version.begin()->first, 1);
  EXPECT_LE(by_version.rbegin()->first, 6);
  EXPECT_GE(by_version.size(), 2u);
}

}  // namespace
}  // namespace rollout
