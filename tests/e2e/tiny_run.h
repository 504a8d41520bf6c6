// A run that takes seconds: a two-layer model over five tokens, a few steps of warm-up and of learning, evaluations,
// checkpoints. An answer is right when "a" follows its last "b", which random weights manage now and then, so that
// there is something to learn from.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "controller/scratch.h"
#include "controller/tiny_inputs.h"
#include "e2e/program.h"

namespace e2e {
namespace fs = std::filesystem;
using base::Json;
using controller::small_config;
using controller::write_rows;
using controller::write_tokenizer;

class TinyRun {
 public:
  TinyRun() {
    write_tokenizer(folder(), {"<pad>", "<bos>", "<eos>"}, "ab");
    base::write_file_atomic(
        folder() / "config.json",
        small_config(8, 16, {"compressed_sparse_attention", "heavily_compressed_attention"}).dump(1));
    std::vector<Json> problems, demonstrations;
    for (int i = 0; i < 32; ++i) {
      std::string letters;
      for (int bit = 0; bit < 5; ++bit) letters += (i >> bit & 1) != 0 ? 'b' : 'a';
      problems.push_back(
          {{"prompt", "<bos>" + letters}, {"label", "a"}, {"metadata", {{"first", letters.substr(0, 1)}}}});
      demonstrations.push_back({{"prompt", "<bos>" + letters}, {"response", i % 2 == 0 ? "ba" : "ab"}});
    }
    write_rows(folder() / "problems.jsonl", problems);
    write_rows(folder() / "demonstrations.jsonl", demonstrations);
    base::write_file_atomic(recipe(), recipe_text());
  }

  const fs::path& folder() const { return scratch_.path(); }
  fs::path recipe() const { return folder() / "recipe.toml"; }
  fs::path run(const std::string& name) const { return folder() / name; }

  std::vector<std::string> train(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"train", recipe().string(), "--run.dir=" + run(name).string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  Finished finish(const std::string& name, const std::vector<std::string>& more = {}) const {
    return run_program(train(name, more), folder() / (name + ".out"));
  }

 private:
  std::string recipe_text() const {
    const std::string rows = "apply_chat_template = false\n", at = folder().string() + "/";
    return "[run]\nsteps = 6\nseed = 5\nthreads = 1\n"
           "[model]\nconfig = \"" +
           at + "config.json\"\n[tokenizer]\npath = \"" + at +
           "tokenizer.json\"\n"
           "[data]\npath = \"" +
           at + "problems.jsonl\"\n" + rows +
           "[warmup]\nsteps = 4\nbatch_size = 8\n[warmup.optimizer.schedule]\nlr = 0.01\n[warmup.data]\npath = \"" +
           at + "demonstrations.jsonl\"\n" + rows +
           "[rollout]\nprompts_per_step = 4\nsamples_per_prompt = 4\n"
           "[rollout.sampling]\nmax_new_tokens = 3\n"
           "[rollout.engine]\nprofile = \"fp8\"\nnum_slots = 8\nmax_context = 32\nmax_batch_tokens = 64\n"
           "[rollout.dynamic_sampling]\non = true\ngroups_per_round = 6\nmax_rounds = 2\n"
           "[reward]\nkind = \"after_last\"\nseparator = \"b\"\nworkers = 1\n"
           "[actor]\nprofile = \"bf16\"\ntokens_per_microbatch = 128\n[actor.optimizer.schedule]\nlr = 0.01\n"
           "[actor.stop]\nmax_gap = 0\nreward_collapse = 0\n"
           "[eval]\nevery = 3\n[[eval.sets]]\nname = \"letters\"\nnum_samples = 2\ngreedy = true\nby = [\"first\"]\n"
           "data.path = \"" +
           at +
           "problems.jsonl\"\ndata.apply_chat_template = false\ndata.max_rows = 6\n"
           "sampling.max_new_tokens = 3\n"
           "[checkpoint]\nevery = 2\nkeep = 2\nbest = \"letters/pass@1\"\nmodel_dtype = \"f32\"\n";
  }

  controller::Scratch scratch_;
};

}  // namespace e2e
