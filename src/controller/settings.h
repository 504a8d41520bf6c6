// All settings of a run as one tree: the sections of a recipe. Sections that belong to a module are that module's
// structs; this file has the sections of the run itself and how they must fit together.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "actor/settings.h"
#include "base/settings.h"
#include "data/dataset.h"
#include "report/console.h"
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

struct DataSettings {
  data::DatasetSettings rows;
  bool shuffle = true;

  template <class V>
  void visit(V&& v) {
    rows.visit(v);
    v("shuffle", shuffle, "ask the problems in a new random order in each epoch; false: in file order");
  }
};

struct WarmupSettings {
  int64_t steps = 0;
  int64_t batch_size = 64;
  DataSettings data;
  actor::OptimizerSettings optimizer;

  template <class V>
  void visit(V&& v) {
    v("steps", steps, "updates of supervised training before reinforcement learning; 0: none", base::Range{0});
    v("batch_size", batch_size, "demonstrations in one update", base::Range{1, 1 << 20});
    v("data", data, "demonstrations: rows with prompt and response");
    v("optimizer", optimizer, "optimizer of the warm-up; reinforcement learning starts with a fresh one");
  }
};

struct EvalSetSettings {
  std::string name;
  data::DatasetSettings data;
  int64_t num_samples = 8;
  bool greedy = false;
  std::vector<std::string> by;
  std::string reward_kind;
  rollout::SamplingParams sampling;

  template <class V>
  void visit(V&& v) {
    v("name", name, "what the set is called in eval.jsonl and on the console");
    v("data", data, "the problems of the set");
    v("num_samples", num_samples, "answers to each problem, for pass@1, 2, 4, ... up to this", base::Range{1, 1 << 16});
    v("greedy", greedy, "one answer more to each problem, without sampling");
    v("by", by, "metadata keys of the rows by whose values pass@1 is broken down");
    v("reward_kind", reward_kind, "how answers are scored; empty: as reward.kind");
    v("sampling", sampling, "how answers are sampled; nothing is taken over from rollout.sampling");
  }
};

struct EvalSettings {
  int64_t every = 10;
  bool at_start = true;
  bool at_end = true;
  std::vector<EvalSetSettings> sets;

  template <class V>
  void visit(V&& v) {
    v("every", every, "steps between evaluations; 0: none in between", base::Range{0}, base::Resume::harmless);
    v("at_start", at_start, "evaluate before the first step of reinforcement learning", base::Resume::harmless);
    v("at_end", at_end, "evaluate after the last step", base::Resume::harmless);
    v("sets", sets, "named sets of held-out problems", base::Resume::harmless);
  }
};

struct CheckpointSettings {
  int64_t every = 20;
  int64_t keep = 2;
  std::string best = "";
  std::string model_dtype = "bf16";

  template <class V>
  void visit(V&& v) {
    v("every", every, "steps between checkpoints of the whole run state, in warm-up and learning", base::Range{1},
      base::Resume::harmless);
    v("keep", keep, "newest checkpoints that are kept", base::Range{1, 1e6}, base::Resume::harmless);
    v("best", best,
      "evaluation figure by whose highest value the best model is kept in run.dir/best, \"addition/pass@1\"; empty: "
      "none",
      base::Resume::harmless);
    v("model_dtype", model_dtype, "number format of the models that are saved", base::OneOf{"bf16", "f32"},
      base::Resume::harmless);
  }
};

// Everything that a recipe says.
struct RunSettings {
  RunSection run;
  ModelSettings model;
  TokenizerSettings tokenizer;
  DataSettings data;
  WarmupSettings warmup;
  RolloutSettings rollout;
  rewards::RewardSettings reward;
  actor::ActorSettings actor;
  EvalSettings eval;
  CheckpointSettings checkpoint;
  report::ConsoleSettings console;

  template <class V>
  void visit(V&& v) {
    v("run", run, "the run");
    v("model", model, "the policy at the start");
    v("tokenizer", tokenizer, "text to token ids");
    v("data", data, "problems to learn from");
    v("warmup", warmup, "supervised training before reinforcement learning");
    v("rollout", rollout, "asking the policy");
    v("reward", reward, "scoring the answers");
    v("actor", actor, "learning from the scored answers");
    v("eval", eval, "evaluation");
    v("checkpoint", checkpoint, "saving the run");
    v("console", console, "what a person sees");
  }

  // How the sections fit together: everything that can be known before a file is read. Warns about what is legal and
  // usually a mistake. Error{invalid_argument} naming the settings to change.
  void check() const;
  // Of this, what concerns evaluation alone.
  void check_evaluation() const;
};

}  // namespace controller
