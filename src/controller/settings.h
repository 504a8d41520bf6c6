// All settings of a run as one tree: the sections of a recipe. Sections that belong to a module are that module's
// structs; this file has the sections of the run itself and how they must fit together.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/settings.h"
#include "rewards/reward.h"
#include "rollout/request.h"
#include "rollout/settings.h"

namespace controller {

struct RunSection {
  std::string dir;
  int64_t seed = 0;
  int64_t steps = 0;
  int64_t threads = 0;

  template <class V>
  void visit(V&& v) {
    v("dir", dir, "folder of the run: checkpoints, metrics, samples, the final model", base::Resume::harmless);
    v("seed", seed, "from which all randomness of the run follows", base::Range{0});
    v("steps", steps, "steps of reinforcement learning; 0 evaluates only, after a warm-up if there is one",
      base::Range{0}, base::Resume::harmless);
    v("threads", threads, "threads of tensor operations; 0: one for each core. The sums of a run may depend on it",
      base::Range{0, 4096});
  }
};

struct ModelSettings {
  std::string path;
  std::string config;

  template <class V>
  void visit(V&& v) {
    v("path", path, "folder of a model in Hugging Face format (config.json, safetensors) to start from");
    v("config", config, "config.json, or its folder, of a model that starts from random weights; excludes model.path");
  }
};

struct TokenizerSettings {
  std::string path;

  template <class V>
  void visit(V&& v) {
    v("path", path, "tokenizer.json or the folder that holds it; empty: model.path");
  }
};

struct DynamicSamplingSettings {
  bool on = false;
  int64_t groups_per_round = 0;
  int64_t max_rounds = 8;

  template <class V>
  void visit(V&& v) {
    v("on", on, "drop groups whose rewards are all equal and ask further prompts in their place");
    v("groups_per_round", groups_per_round,
      "prompts asked at once, over-sampling the need; 0, or less than rollout.prompts_per_step: that many",
      base::Range{0, 1 << 20});
    v("max_rounds", max_rounds, "rounds after which a step goes on with the groups it has", base::Range{1, 1 << 20});
  }
};

struct RolloutSettings {
  int64_t prompts_per_step = 32;
  int64_t samples_per_prompt = 8;
  int64_t max_staleness = 0;
  DynamicSamplingSettings dynamic_sampling;
  rollout::SamplingParams sampling;
  rollout::EngineSettings engine;

  template <class V>
  void visit(V&& v) {
    v("prompts_per_step", prompts_per_step, "groups in one step", base::Range{1, 1 << 20});
    v("samples_per_prompt", samples_per_prompt, "answers in one group", base::Range{1, 1 << 16});
    v("max_staleness", max_staleness,
      "how many versions older than the trained weights the weights may be that sample; above 0 generation goes on "
      "while the actor trains",
      base::Range{0, 1 << 16});
    v("dynamic_sampling", dynamic_sampling, "which groups are trained on");
    v("sampling", sampling, "how answers are sampled");
    v("engine", engine, "the rollout engine");
  }
};

// Everything that a recipe says.
struct RunSettings {
  RunSection run;
  ModelSettings model;
  TokenizerSettings tokenizer;
  RolloutSettings rollout;
  rewards::RewardSettings reward;

  template <class V>
  void visit(V&& v) {
    v("run", run, "the run");
    v("model", model, "the policy at the start");
    v("tokenizer", tokenizer, "text to token ids");
    v("rollout", rollout, "asking the policy");
    v("reward", reward, "scoring the answers");
  }
};

}  // namespace controller
