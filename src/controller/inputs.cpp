// Reading, and the checks that need more than one file.
#include "controller/inputs.h"

#include <algorithm>
#include <filesystem>

#include "base/hash.h"
#include "base/log.h"
#include "controller/judges.h"

namespace controller {
namespace fs = std::filesystem;
using base::Code;
namespace {

model::Config read_config(const ModelSettings& model) {
  if (!model.path.empty()) return model::Config::load(model.path);
  const fs::path path = model.config;
  if (fs::is_directory(path)) return model::Config::load(path);
  return model::Config::from_json(base::read_json(path), path.string());
}

data::Tokenizer read_tokenizer(const RunSettings& settings) {
  const std::string& path = settings.tokenizer.path.empty() ? settings.model.path : settings.tokenizer.path;
  if (path.empty()) {
    base::fail(Code::invalid_argument,
               "tokenizer.path is empty, and so is model.path, which would stand in for it: name tokenizer.json or its "
               "folder");
  }
  return data::Tokenizer::load(path);
}

// Ids of the model beyond the tokenizer's are padding of its vocabulary.
void check_tokenizer(const data::Tokenizer& tokenizer, const model::Config& config) {
  const int64_t size = tokenizer.vocab_size();
  if (size > config.vocab_size) {
    base::fail(Code::invalid_argument,
               "{}: has ids up to {}, and the model's vocab_size is {}; they do not belong together", tokenizer.name(),
               size - 1, config.vocab_size);
  }
  if (const auto gaps = tokenizer.ids_without_token(size); !gaps.empty()) {
    base::fail(Code::invalid_argument,
               "{}: {} ids below its largest one have no token, the first is {}; a policy could "
               "sample them. Ids must be dense",
               tokenizer.name(), gaps.size(), gaps.front());
  }
  if (tokenizer.eos_id() && *tokenizer.eos_id() != config.eos_token_id) {
    base::fail(Code::invalid_argument,
               "{}: the end of sequence is id {}, and the model's eos_token_id is {}: answers would not end",
               tokenizer.name(), *tokenizer.eos_id(), config.eos_token_id);
  }
}

void tell(const data::DatasetReport& report) {
  spdlog::info("{}: {} rows, {} kept", report.path, report.num_rows, report.num_kept);
  for (const std::string& notice : report.notices) spdlog::warn("{}: {}", report.path, notice);
}

// An answer needs at least one token of room; data settings can drop longer prompts.
void check_prompts(const std::vector<data::Problem>& problems, const std::string& section, int64_t max_context) {
  for (const data::Problem& problem : problems) {
    const auto size = static_cast<int64_t>(problem.prompt_ids.size());
    if (size < max_context && size > 0) continue;
    base::fail(
        Code::invalid_argument,
        "{}: the prompt has {} tokens; with rollout.engine.max_context = {} it needs 1 to {}. Raise that, or set "
        "{}.max_prompt_tokens so that longer ones are dropped",
        problem.id, size, max_context, max_context - 1, section);
  }
}

void check_labels(const std::vector<data::Problem>& problems, const rewards::RewardSettings& reward) {
  for (const data::Problem& problem : problems) rewards::check_label(reward, problem);
}

int64_t longest_sequence(const Inputs& inputs, const RunSettings& settings) {
  int64_t longest = 2;
  for (const data::Problem& problem : inputs.problems) {
    const int64_t most = static_cast<int64_t>(problem.prompt_ids.size()) + settings.rollout.sampling.max_new_tokens;
    longest = std::max(longest, std::min(most, settings.rollout.engine.max_context));
  }
  for (const data::Demonstration& row : inputs.demonstrations) {
    longest = std::max(longest, static_cast<int64_t>(row.prompt_ids.size() + row.response_ids.size()));
  }
  return longest;
}

void read_training_data(const RunSettings& settings, Inputs& inputs) {
  base::Hash64 fingerprint;
  if (settings.run.steps > 0) {
    data::Dataset data = data::load_problems(settings.data.rows, inputs.tokenizer);
    tell(data.report);
    check_prompts(data.problems, "data", settings.rollout.engine.max_context);
    check_labels(data.problems, settings.reward);
    inputs.problems = std::move(data.problems);
    fingerprint.update(base::hash_text(data.report.fingerprint));
  }
  if (settings.warmup.steps > 0) {
    data::DemonstrationSet data = data::load_demonstrations(settings.warmup.data.rows, inputs.tokenizer);
    tell(data.report);
    inputs.demonstrations = std::move(data.demonstrations);
    fingerprint.update(base::hash_text(data.report.fingerprint));
  }
  inputs.fingerprint = base::hash_text(fingerprint.digest());
  inputs.longest = longest_sequence(inputs, settings);
}

}  // namespace

rollout::Vocabulary Inputs::vocabulary() const {
  return {[this](int32_t id) { return tokenizer.bytes_of(id); }, tokenizer.ids_without_token(config.vocab_size)};
}

Inputs read_inputs(const RunSettings& settings, Purpose purpose) {
  model::Config config = read_config(settings.model);
  data::Tokenizer tokenizer = read_tokenizer(settings);
  check_tokenizer(tokenizer, config);
  Inputs inputs{.config = std::move(config), .tokenizer = std::move(tokenizer)};
  if (purpose == Purpose::training) read_training_data(settings, inputs);
  for (const EvalSetSettings& set : settings.eval.sets) {
    data::Dataset data = data::load_problems(set.data, inputs.tokenizer);
    tell(data.report);
    const std::string section = "eval.sets (" + set.name + ").data";
    check_prompts(data.problems, section, settings.rollout.engine.max_context);
    check_labels(data.problems, with_kind(settings.reward, set.reward_kind));
    inputs.sets.push_back({set, std::move(data.problems)});
  }
  check_sets(inputs.sets);
  return inputs;
}

}  // namespace controller
