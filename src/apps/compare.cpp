// furlong compare: two scorers, the same tokens; how their log-probs differ, and where and why their streams part.
#include <algorithm>
#include <memory>

#include "apps/commands.h"
#include "apps/compare_sides.h"
#include "apps/standard_io.h"
#include "apps/terminal.h"
#include "base/error.h"
#include "base/files.h"
#include "base/stop.h"
#include "compare/comparison.h"
#include "compare/output.h"
#include "compare/token_file.h"

namespace apps {
namespace {

using base::Code;

const Usage kUsage = {
    "compare", "A B",
    "Has A and B score the same tokens and shows how far their log-probs lie apart. Where both compute here, also the "
    "first "
    "layer and place where their streams part, and why. A and B are each one of:\n"
    "  engine:PROFILE@MODEL   the rollout engine, by chunked prefill over a cache\n"
    "  actor:PROFILE@MODEL    the actor, by packed passes without one\n"
    "  PROFILE@MODEL          a plain forward pass; MODEL alone: in f32\n"
    "  http://HOST:PORT       a server with SGLang's /generate route (log-probs of a prompt, at temperature 1)\n"
    "  FILE                   log-probs from elsewhere, a line each:\n"
    "                         {\"input_ids\": [5, 17], \"log_probs\": [null, -1.25], \"temperature\": 1.0}\n"
    "MODEL is a model folder; PROFILE is f32, bf16, fp8 or fp8_fp4; for an actor or a plain pass also bf16+kv, "
    "bf16+index, "
    "bf16+kv+index, which simulate an fp8 engine's cache.\n"
    "Scored are the lines of --tokens, or those of a FILE side. Examples:\n"
    "  furlong compare engine:fp8@model actor:fp8@model --tokens=texts.jsonl\n"
    "  furlong compare f32@model f32@other_model --tokens=texts.jsonl --html=compare.html\n"
    "  furlong compare http://127.0.0.1:30000 bf16@model --tokens=texts.jsonl --max_abs=0.05\n"
    "  furlong compare theirs.jsonl actor:bf16@model\n"
    "Exit code: 0 when every difference is at most max_abs, 1 when one is larger, 2 for an error.",
    2, 2};

struct Options {
  std::string tokens, tokenizer, html, walk = "differing";
  double temperature = 0, max_abs = 0, tolerance = compare::CompareOptions::kUnset, request_timeout_s = 300;
  bool json = false;
  int64_t worst = 10, walk_sequences = 2, walk_tokens = 1024;
  int64_t batch_tokens = 8192, num_slots = 8, prefill_chunk = 512, threads = 0;

  template <class V>
  void visit(V&& v) {
    v("tokens", tokens,
      "what to score, JSON lines: {\"input_ids\": [5, 17, 3]} or {\"text\": \"...\"}; empty: the lines of a FILE side");
    v("tokenizer", tokenizer, "tokenizer.json or its folder; empty: that of a MODEL, if it has one");
    v("temperature", temperature, "divides the logits; 0: that of a FILE side, 1 where there is none",
      base::Range{0, 1e6});
    v("max_abs", max_abs, "largest |difference| in nats, of any token, that counts as equal", base::Range{0});
    v("worst", worst, "tokens in the list of largest differences", base::Range{0, 10000});
    v("walk", walk,
      "layer by layer, where both sides compute here: differing looks at sequences whose log-probs differ, always at "
      "equal ones too",
      base::OneOf{"differing", "always", "never"});
    v("walk_sequences", walk_sequences, "so many sequences, those that differ soonest first", base::Range{1, 1000});
    v("walk_tokens", walk_tokens, "so many tokens of each; more where the first difference comes later",
      base::Range{1, 1 << 20});
    v("tolerance", tolerance,
      "relative difference of a token's values from which streams count as parted; -1: 0 (any bit) for sides of one "
      "precision, else 0.1",
      base::Range{-1, 1e6});
    v("html", html, "write a page with heat maps of tokens by layer to this file");
    v("json", json, "one JSON object instead of text");
    v("batch_tokens", batch_tokens, "tokens of one forward pass", base::Range{1, 1 << 20});
    v("num_slots", num_slots, "engine: sequences in flight at a time", base::Range{1, 1 << 16});
    v("prefill_chunk", prefill_chunk, "engine: tokens of one sequence in one pass", base::Range{1, 1 << 20});
    v("request_timeout_s", request_timeout_s, "server: seconds that one request may take", base::Range{0.001, 1e6});
    v("threads", threads, "threads of tensor operations; 0: one for each core", base::Range{0, 4096});
  }
};

std::vector<compare::Sequence> sequences_of(const Options& options, const CompareSides& sides) {
  if (!options.tokens.empty()) {
    return compare::read_tokens(options.tokens, [&](const std::string& text, const std::string& where) {
      if (sides.tokenizer() == nullptr) {
        base::fail(Code::invalid_argument,
                   "{}: a text needs a tokenizer, and no side's folder holds a tokenizer.json: give --tokenizer=FILE",
                   where);
      }
      return sides.tokenizer()->encode(text, data::Markers::as_ids);
    });
  }
  if (sides.file() != nullptr) return sides.file()->sequences();
  throw UsageError(
      "furlong compare: what should be scored? Give --tokens=FILE, JSON lines with \"text\" or \"input_ids\"");
}

// Text of ids; one without a token is shown as its number.
std::function<std::string(std::span<const int32_t>)> decoder(const data::Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return nullptr;
  return [tokenizer](std::span<const int32_t> ids) {
    const bool all = std::all_of(ids.begin(), ids.end(), [&](int32_t id) { return tokenizer->has_token(id); });
    if (all) return tokenizer->decode(ids);
    std::string text;
    for (const int32_t id : ids)
      text += tokenizer->has_token(id) ? tokenizer->decode({&id, 1}) : fmt::format("<{}>", id);
    return text;
  };
}

compare::CompareOptions compare_options(const Options& options, double temperature) {
  using When = compare::CompareOptions::WalkWhen;
  compare::CompareOptions result;
  result.temperature = temperature;
  result.num_worst = options.worst;
  result.walk = options.walk == "always" ? When::always : options.walk == "never" ? When::never : When::differing;
  result.walk_sequences = options.walk_sequences;
  result.walk_tokens = options.walk_tokens;
  result.tolerance = options.tolerance < 0 ? compare::CompareOptions::kUnset : options.tolerance;
  return result;
}

// Long work on standard error; standard output has the result.
class Progress {
 public:
  void see(std::string_view what, int64_t done, int64_t total) {
    if (phase_ == nullptr || what != name_) {
      phase_.reset();
      name_ = what;
      phase_.reset(new report::Console::Phase(console_.phase(what, total, "")));
    }
    phase_->update(done, total);
  }

 private:
  report::Console console_{{}, standard_error()};
  std::unique_ptr<report::Console::Phase> phase_;
  std::string name_;
};

compare::Comparison run(const Options& options, CompareSides& sides, const base::StopSignals& stop) {
  std::vector<compare::Sequence> sequences = sequences_of(options, sides);
  sides.check(sequences);
  const double from_file = sides.file() != nullptr ? sides.file()->temperature() : 1;
  const double temperature = options.temperature > 0 ? options.temperature : from_file;
  const auto [a, b] = sides.open(
      sequences, {options.batch_tokens, options.num_slots, options.prefill_chunk, options.request_timeout_s});
  Progress progress;
  const compare::Watch watch{
      [&](std::string_view what, int64_t done, int64_t total) { progress.see(what, done, total); },
      [&] { return stop.requested(); }};
  compare::Comparison comparison =
      compare::compare_sides(*a, *b, std::move(sequences), compare_options(options, temperature), watch);
  comparison.decode = decoder(sides.tokenizer());
  return comparison;
}

bool within(const compare::Differences& differences, double max_abs) {
  return differences.absolute.nonfinite == 0 && differences.absolute.max <= max_abs;
}

}  // namespace

int run_compare(const Call& call) {
  Options options;
  base::Fields fields = base::fields_of(options);
  const CommandLine line = read_command_line(fields, kUsage, call.arguments);
  if (line.help) return print_help(fields, kUsage);
  apply_overrides(fields, line);

  const base::StopSignals stop;
  set_threads(options.threads);
  CompareSides sides(line.positional[0], line.positional[1], options.tokenizer);
  try {
    const compare::Comparison comparison = run(options, sides, stop);
    if (!options.html.empty()) base::write_file_atomic(options.html, compare::to_html(comparison));
    write_text(options.json ? base::to_line(compare::to_json(comparison)) + "\n" : compare::to_text(comparison));
    flush_output();
    return within(comparison.differences, options.max_abs) ? 0 : 1;
  } catch (const compare::Stopped&) {
    fmt::print(stderr, "stopped; nothing was written\n");
    return stop.exit_code();
  }
}

}  // namespace apps
