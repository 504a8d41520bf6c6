// furlong score: the log-probs that a model gives to token ids or texts, computed by the rollout engine or by the
// actor, at any precision and packing. JSON lines in and out, so that other programs can be compared with it.
#include <algorithm>
#include <iostream>
#include <map>

#include "apps/commands.h"
#include "apps/model_folder.h"
#include "apps/standard_io.h"
#include "base/error.h"
#include "base/json.h"

namespace apps {
namespace {

using base::Code;

const Usage kUsage = {"score", "MODEL [FILE]",
                      "Reads JSON lines from FILE, or from standard input, and writes one line for each to standard "
                      "output, in the same order.\n"
                      "  in:   {\"ids\": [5, 17, 3]}   or   {\"text\": \"...\"}  (encoded with the tokenizer; texts of "
                      "markers become their ids)\n"
                      "  out:  {\"ids\": [5, 17, 3], \"log_probs\": [-1.25, -0.5]}\n"
                      "log_probs[t] is the natural log of the probability of ids[t + 1] given ids[0..t], softmax over "
                      "the whole vocabulary of the logits divided "
                      "by the temperature; so there is one value less than ids. Ids that the tokenizer does not have "
                      "count as impossible.",
                      1, 2};

struct ScoreOptions {
  std::string tokenizer, profile = "f32", side = "engine";
  double temperature = 1;
  int64_t batch_tokens = 8192, num_slots = 8, prefill_chunk = 512, threads = 0;

  template <class V>
  void visit(V&& v) {
    v("tokenizer", tokenizer, "tokenizer.json or its folder; empty: that of MODEL, if it has one");
    v("profile", profile, "precision", base::OneOf{"f32", "bf16", "fp8", "fp8_fp4"});
    v("side", side,
      "who computes: the rollout engine, by chunked prefill over a cache, or the actor, by packed passes without one",
      base::OneOf{"engine", "actor"});
    v("temperature", temperature, "divides the logits", base::Range{1e-6, 1e6});
    v("batch_tokens", batch_tokens, "tokens of one forward pass", base::Range{1, 1 << 20});
    v("num_slots", num_slots, "side engine: sequences in flight at a time", base::Range{1, 1 << 16});
    v("prefill_chunk", prefill_chunk, "side engine: tokens of one sequence in one pass", base::Range{1, 1 << 20});
    v("threads", threads, "threads of tensor operations; 0: one for each core", base::Range{0, 4096});
  }
};

using Ids = std::vector<int32_t>;

Ids ids_from(const base::Json& json, const std::string& where) {
  if (!json.is_array()) base::fail(Code::invalid_argument, "{}: \"ids\" should be a list of token ids", where);
  Ids ids;
  for (const base::Json& id : json) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      base::fail(Code::invalid_argument, "{}: {} is not a token id", where, base::to_line(id).substr(0, 80));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

Ids read_line(const std::string& line, const std::string& where, const ModelFolder& model) {
  const base::Json json = base::parse_json(line, where);
  Ids ids;
  if (json.is_object() && json.contains("ids")) {
    ids = ids_from(json.at("ids"), where);
  } else if (json.is_object() && json.contains("text") && json.at("text").is_string()) {
    ids = model.tokenizer_for(where + ": a text")
              .encode(json.at("text").get_ref<const std::string&>(), data::Markers::as_ids);
  } else {
    base::fail(Code::invalid_argument, "{}: should be an object with \"ids\" (a list) or \"text\"", where);
  }
  if (ids.empty()) base::fail(Code::invalid_argument, "{}: has no tokens; at least one is needed", where);
  const int64_t vocab = model.weights.config.vocab_size;
  const auto outside = std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id >= vocab; });
  if (outside != ids.end())
    base::fail(Code::invalid_argument, "{}: id {}: ids of this model are 0..{}", where, *outside, vocab - 1);
  if (model.tokenizer) model.tokenizer->check_ids(ids, where);
  return ids;
}

std::vector<Ids> read_lines(const std::string& text, const std::string& name, const ModelFolder& model) {
  std::vector<Ids> all;
  size_t start = 0;
  for (size_t number = 1; start < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = text.substr(start, end - start);
    start = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    all.push_back(read_line(line, name + ":" + std::to_string(number), model));
  }
  return all;
}

void write_scores(const Ids& ids, std::span<const float> log_probs) {
  base::Json json;
  json["ids"] = ids;
  json["log_probs"] = log_probs;
  write_line(base::to_line(json));
}

void score_by_engine(const ModelFolder& model, const ScoreOptions& options, const std::vector<Ids>& all) {
  size_t longest = 1;
  for (const Ids& ids : all) longest = std::max(longest, ids.size());
  rollout::EngineSettings settings;
  settings.profile = options.profile;
  settings.num_slots = std::min(options.num_slots, options.batch_tokens);
  settings.max_batch_tokens = options.batch_tokens;
  settings.prefill_chunk = options.prefill_chunk;
  settings.max_context = std::max<int64_t>(2, static_cast<int64_t>(longest));
  const std::unique_ptr<rollout::Engine> engine = make_engine(model, settings);

  std::map<int64_t, size_t> line_of;  // by request
  for (size_t i = 0; i < all.size(); ++i) {
    rollout::Request request;
    request.prompt_ids = all[i];
    request.score = true;
    request.input_logprob_temperature = options.temperature;
    line_of[engine->submit(std::move(request))] = i;
  }
  std::map<size_t, std::vector<float>> waiting;  // finished before a line above them
  size_t next = 0;
  while (!engine->idle()) {
    for (rollout::Output& output : engine->step()) {
      if (!output.error.empty())
        base::fail(Code::unavailable, "line {}: {}", line_of.at(output.request) + 1, output.error);
      waiting[line_of.at(output.request)] = std::move(output.prompt_log_probs);
    }
    for (auto at = waiting.find(next); at != waiting.end(); at = waiting.find(next)) {
      write_scores(all[next++], at->second);
      waiting.erase(at);
    }
  }
}

void score_by_actor(ModelFolder& model, const ScoreOptions& options, const std::vector<Ids>& all) {
  actor::ActorSettings settings;
  settings.profile = options.profile;
  settings.tokens_per_microbatch = options.batch_tokens;
  const std::unique_ptr<actor::Actor> actor = make_actor(model, settings);
  std::vector<actor::ScoreRequest> requests;
  for (const Ids& ids : all) requests.push_back({ids, 1});
  const std::vector<actor::Scored> scored = actor->score(requests, options.temperature);
  for (size_t i = 0; i < all.size(); ++i) write_scores(all[i], scored[i].log_probs);
}

}  // namespace

int run_score(const Call& call) {
  ScoreOptions options;
  base::Fields fields = base::fields_of(options);
  const CommandLine line = read_command_line(fields, kUsage, call.arguments);
  if (line.help) return print_help(fields, kUsage);
  apply_overrides(fields, line);

  set_threads(options.threads);
  const bool from_file = line.positional.size() > 1 && line.positional[1] != "-";
  const std::string name = from_file ? line.positional[1] : "standard input";
  ModelFolder model = open_model(line.positional.front(), options.tokenizer);
  const std::vector<Ids> all = read_lines(from_file ? read_input_file(name) : read_standard_input(), name, model);
  if (options.side == "engine") {
    score_by_engine(model, options, all);
  } else {
    score_by_actor(model, options, all);
  }
  flush_output();
  return 0;
}

}  // namespace apps
