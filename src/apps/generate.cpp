// furlong generate: answers of a model to one prompt.
#include <algorithm>
#include <map>

#include "apps/commands.h"
#include "apps/model_folder.h"
#include "apps/standard_io.h"
#include "base/error.h"
#include "base/json.h"
#include "data/chat_encoding.h"

namespace apps {
namespace {

using base::Code;

const Usage kUsage = {"generate", "MODEL",
                      "Prints the answers of a model to --prompt, or to the prompt on standard input. The prompt is "
                      "taken as it stands, markers included; with "
                      "--chat it is a user's message and becomes a DeepSeek-V4 chat prompt. With --json each answer is "
                      "a line with its text, token ids, log-probs "
                      "and why it ended.",
                      1, 1};

struct GenerateOptions {
  std::string prompt, system, thinking = "chat", tokenizer, profile = "bf16";
  bool chat = false, json = false;
  int64_t num_samples = 1, seed = 0, max_context = 4096, threads = 0;
  rollout::SamplingParams sampling;

  template <class V>
  void visit(V&& v) {
    v("prompt", prompt, "the text to answer; empty: standard input");
    v("chat", chat, "the prompt is a message of a user");
    v("system", system, "with chat: the system message; empty: none");
    v("thinking", thinking, "with chat: whether the model thinks before it answers", base::OneOf{"chat", "thinking"});
    v("num_samples", num_samples, "answers", base::Range{1, 1 << 16});
    v("seed", seed, "of the sampling noise: the same seed gives the same answers", base::Range{0});
    v("json", json, "write JSON lines");
    v("tokenizer", tokenizer, "tokenizer.json or its folder; empty: that of MODEL");
    v("profile", profile, "precision", base::OneOf{"f32", "bf16", "fp8", "fp8_fp4"});
    v("max_context", max_context, "tokens of prompt and answer together", base::Range{2, 1 << 24});
    v("threads", threads, "threads of tensor operations; 0: one for each core", base::Range{0, 4096});
    v("sampling", sampling, "how tokens are drawn");
  }
};

std::vector<int32_t> prompt_ids(const GenerateOptions& options, const data::Tokenizer& tokenizer) {
  const std::string text = options.prompt.empty() ? read_standard_input() : options.prompt;
  if (!options.chat) return tokenizer.encode(text, data::Markers::as_ids);
  base::Json messages = base::Json::array();
  if (!options.system.empty()) messages.push_back({{"role", "system"}, {"content", options.system}});
  messages.push_back({{"role", "user"}, {"content", text}});
  data::ChatOptions chat;
  chat.thinking = data::thinking_mode_from(options.thinking);
  return data::encode_prompt(tokenizer, data::render_chat(messages, chat, "the prompt"));
}

rollout::Request request_of(const GenerateOptions& options, std::vector<int32_t> ids) {
  rollout::Request request;
  request.prompt_ids = std::move(ids);
  request.sampling = options.sampling;
  request.num_samples = options.num_samples;
  request.seeds = rollout::group_seeds(static_cast<uint64_t>(options.seed), options.num_samples);
  return request;
}

void write_json(const rollout::Output& output) {
  base::Json json;
  json["index"] = output.index;
  json["text"] = output.text;
  json["ended"] = rollout::to_string(output.ended);
  json["ids"] = output.response_ids;
  json["log_probs"] = output.log_probs;
  json["seed"] = output.seed;
  write_line(base::to_line(json));
}

void write_answer(const rollout::Output& output, int64_t num_samples) {
  if (num_samples > 1)
    write_line(fmt::format("--- answer {} ({})", output.index + 1, rollout::to_string(output.ended)));
  write_line(output.text);
}

}  // namespace

int run_generate(const Call& call) {
  GenerateOptions options;
  base::Fields fields = base::fields_of(options);
  const CommandLine line = read_command_line(fields, kUsage, call.arguments);
  if (line.help) return print_help(fields, kUsage);
  apply_overrides(fields, line);
  if (!options.system.empty() && !options.chat) {
    throw UsageError("furlong generate: --system has a meaning only with --chat");
  }

  set_threads(options.threads);
  const ModelFolder model = open_model(line.positional.front(), options.tokenizer);
  rollout::EngineSettings settings;
  settings.profile = options.profile;
  settings.num_slots = std::min<int64_t>(options.num_samples, settings.num_slots);
  settings.max_context = std::min(options.max_context, model.weights.config.max_position_embeddings);
  const std::unique_ptr<rollout::Engine> engine = make_engine(model, settings);
  engine->submit(request_of(options, prompt_ids(options, model.tokenizer_for("generating text"))));
  std::map<int64_t, rollout::Output> waiting;  // ended before one of a lower index
  int64_t next = 0;
  while (!engine->idle()) {
    for (rollout::Output& output : engine->step()) {
      if (!output.error.empty()) base::fail(Code::unavailable, "answer {}: {}", output.index + 1, output.error);
      waiting.emplace(output.index, std::move(output));
    }
    for (auto at = waiting.find(next); at != waiting.end(); at = waiting.find(++next)) {
      options.json ? write_json(at->second) : write_answer(at->second, options.num_samples);
      flush_output();
      waiting.erase(at);
    }
  }
  return 0;
}

}  // namespace apps
