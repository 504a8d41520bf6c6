// Generation and one step of reinforcement learning, end to end through engine and actor: what a peer's tokens per
// second are compared with (benchmarks/peers). Prints one JSON line for each measurement.
//
//   engine_bench [MODEL] [--profile P] [--threads N] [--batch N]... [--repeat N] [--steps N] [--new N]
//
// MODEL: a folder with weights, or a config.json (random weights then); default benchmarks/models/tiny.json.
// generate: batches (by default of 1 and 64) of prompts of 16 tokens, 64 new tokens each, sampled at T = 1; the best of
// N repeats. rl_step: 32 prompts of 6 tokens x 8 samples x 32 new tokens, rewards, one update, weights published; mean
// of the steps after the first, by phase, with the process's resident memory after each third.
#include <ATen/Parallel.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "actor/actor.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "checkpoint/load.h"
#include "rollout/engine.h"
#include "weight_sync/in_process.h"

namespace {

struct Options {
  std::string model = "benchmarks/models/tiny.json", profile = "f32";
  int threads = 1, repeat = 3, steps = 5;
  int64_t new_tokens = 64;
  std::vector<int64_t> batches;
};

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (argument.starts_with("--benchmark")) continue;  // of the other programs of ./dev bench
    if (argument == "--profile") {
      options.profile = value();
    } else if (argument == "--threads") {
      options.threads = std::atoi(value().c_str());
    } else if (argument == "--repeat") {
      options.repeat = std::atoi(value().c_str());
    } else if (argument == "--steps") {
      options.steps = std::atoi(value().c_str());
    } else if (argument == "--batch") {
      options.batches.push_back(std::atoi(value().c_str()));
    } else if (argument == "--new") {
      options.new_tokens = std::atoi(value().c_str());
    } else if (argument.starts_with("-")) {
      fmt::print(stderr, "engine_bench: there is no option {}; the options stand at the top of engine_bench.cpp\n",
                 argument);
      std::exit(2);
    } else {
      options.model = argument;
    }
  }
  if (options.batches.empty()) options.batches = {1, 64};
  return options;
}

model::Weights weights_of(const std::string& path) {
  if (std::filesystem::is_directory(path)) return checkpoint::load_weights(path);
  return model::Weights::initialise(model::Config::from_json(base::read_json(path), path), 1);
}

double load() {
  double average = 0;
  return getloadavg(&average, 1) == 1 ? average : -1;
}

double resident_mib() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

std::vector<int32_t> prompt_of(base::Philox& random, int64_t vocab, int64_t length) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i)
    ids.push_back(static_cast<int32_t>(5 + random.next_below(static_cast<uint64_t>(vocab - 5))));
  return ids;
}

rollout::Request request_of(std::vector<int32_t> prompt, int64_t new_tokens, int64_t samples) {
  rollout::Request request;
  request.prompt_ids = std::move(prompt);
  request.sampling.max_new_tokens = new_tokens;
  request.sampling.ignore_eos = true;
  request.num_samples = samples;
  return request;
}

std::unique_ptr<rollout::Engine> engine_of(const model::Weights& masters, const Options& options, int64_t slots,
                                           int64_t context) {
  rollout::EngineSettings settings;
  settings.profile = options.profile;
  settings.num_slots = slots;
  settings.max_context = context;
  settings.max_batch_tokens = std::max<int64_t>(1024, slots);
  auto engine = std::make_unique<rollout::Engine>(masters.config, settings);
  weight_sync::WeightsSource source(masters, weight_sync::publish_as(engine->engine_weights().profile()));
  weight_sync::publish(source, engine->weights(), 1);
  return engine;
}

void generate(const model::Weights& masters, const Options& options, int64_t batch) {
  constexpr int64_t kPrompt = 16;
  const auto engine = engine_of(masters, options, batch, kPrompt + options.new_tokens);
  const base::Clock clock;
  double best_s = 1e9;
  for (int round = 0; round <= options.repeat; ++round) {  // the first warms up
    base::Philox random(7);
    for (int64_t i = 0; i < batch; ++i)
      engine->submit(request_of(prompt_of(random, masters.config.vocab_size, kPrompt), options.new_tokens, 1));
    const double start_s = clock.now_s();
    while (!engine->idle()) engine->step();
    if (round > 0) best_s = std::min(best_s, clock.now_s() - start_s);
  }
  fmt::print(
      "{{\"what\": \"generate\", \"profile\": \"{}\", \"threads\": {}, \"batch\": {}, \"tokens_per_s\": {:.0f}, "
      "\"load\": {:.1f}}}\n",
      options.profile, options.threads, batch, static_cast<double>(batch * options.new_tokens) / best_s, load());
}

std::vector<data::Group> groups_of(rollout::Engine& engine, int64_t vocab, uint64_t seed) {
  constexpr int64_t kPrompts = 32, kSamples = 8, kPrompt = 6, kNew = 32;
  base::Philox random(seed);
  std::vector<data::Group> groups;
  std::map<int64_t, size_t> group_of;
  for (int64_t g = 0; g < kPrompts; ++g) {
    data::Group& group = groups.emplace_back();
    group.id = g;
    group.problem.prompt_ids = prompt_of(random, vocab, kPrompt);
    group.samples.resize(kSamples);
    group_of[engine.submit(request_of(group.problem.prompt_ids, kNew, kSamples))] = static_cast<size_t>(g);
  }
  while (!engine.idle()) {
    for (rollout::Output& output : engine.step()) {
      data::Sample& sample = groups[group_of.at(output.request)].samples[static_cast<size_t>(output.index)];
      sample.index = output.index;
      sample.response_ids = std::move(output.response_ids);
      sample.log_probs = std::move(output.log_probs);
      sample.versions = std::move(output.versions);
      sample.reward = static_cast<double>(random.next_below(2));
    }
  }
  return groups;
}

void rl_steps(const model::Weights& masters, const Options& options) {
  const auto engine = engine_of(masters, options, 256, 40);
  actor::ActorSettings settings;
  settings.profile = options.profile;
  settings.recompute = false;
  settings.optimizer.schedule.lr = 1e-4;
  actor::Actor actor(settings, masters.clone());
  const base::Clock clock;
  double generate_s = 0, train_s = 0, publish_s = 0, tokens = 0;
  std::vector<double> memory;
  for (int step = 0; step <= options.steps; ++step) {
    const double start_s = clock.now_s();
    const std::vector<data::Group> groups = groups_of(*engine, masters.config.vocab_size, static_cast<uint64_t>(step));
    const double generated_s = clock.now_s();
    actor.train(step, {groups, 1.0, step + 1});
    const double trained_s = clock.now_s();
    weight_sync::WeightsSource source(actor.masters(), weight_sync::publish_as(engine->engine_weights().profile()));
    weight_sync::publish(source, engine->weights(), step + 2);
    if (step % std::max(1, options.steps / 3) == 0) memory.push_back(resident_mib());
    if (step == 0) continue;
    generate_s += generated_s - start_s;
    train_s += trained_s - generated_s;
    publish_s += clock.now_s() - trained_s;
    tokens += 32 * 8 * 32;
  }
  const double steps = options.steps, total_s = generate_s + train_s + publish_s;
  fmt::print(
      "{{\"what\": \"rl_step\", \"profile\": \"{}\", \"threads\": {}, \"completion_tokens_per_s\": {:.0f}, "
      "\"step_s\": {:.3f}, \"generate_s\": {:.3f}, \"train_s\": {:.3f}, \"publish_s\": {:.3f}, "
      "\"resident_mib\": [{:.0f}], \"load\": {:.1f}}}\n",
      options.profile, options.threads, tokens / total_s, total_s / steps, generate_s / steps, train_s / steps,
      publish_s / steps, fmt::join(memory, ", "), load());
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = read_options(argc, argv);
  at::set_num_threads(1);
  base::set_num_threads(options.threads);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);  // as the program does (apps/main.cpp)
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const model::Weights masters = weights_of(options.model);
  for (const int64_t batch : options.batches) generate(masters, options, batch);
  if (options.steps > 0) rl_steps(masters, options);
}
