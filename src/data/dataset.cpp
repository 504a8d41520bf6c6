// Rows to problems and demonstrations, with the counts of what was dropped.
#include "data/dataset.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "data/json_fields.h"
#include "data/jsonl.h"
#include "data/row.h"

namespace data {
namespace {

using base::Code;
using base::Json;

constexpr size_t kMaxExamples = 3;  // rows named in a notice

// A vocabulary without some bytes drops them; a prompt without them would be another prompt.
void check_nothing_lost(const std::string& text, const std::vector<int32_t>& ids, const Tokenizer& tokenizer,
                        const std::string& where) {
  if (tokenizer.num_bytes_without_token() == 0) return;
  const std::string back = tokenizer.decode(ids);
  if (back == text) return;
  const auto differs = std::mismatch(text.begin(), text.end(), back.begin(), back.end()).first;
  const auto at = static_cast<size_t>(differs - text.begin());
  base::fail(Code::invalid_argument, "{}: {} has no token for the text {} at byte {}", where, tokenizer.name(),
             quote(std::string_view(text).substr(at, 16)), at);
}

// What both kinds of rows go through: the window of rows, bad rows, over-long prompts, and the report.
class Loader {
 public:
  Loader(const DatasetSettings& settings, const Tokenizer& tokenizer) : settings_(settings), tokenizer_(tokenizer) {
    check_settings();
    report_.path = settings.path;
  }

  // make(row, keys, where) is called for each row inside skip_rows and max_rows.
  template <class Make>
  void read(Make&& make) {
    const auto on_row = [&](const Json& row, const std::string& where) {
      if (is_past_the_end()) return false;
      in_row_ = true;
      if (count_row()) {
        if (!keys_) keys_ = choose_keys(settings_, row);
        make(row, *keys_, where);
      }
      in_row_ = false;
      return true;
    };
    const auto on_bad_line = [&](const std::string& message) {
      if (!std::exchange(in_row_, false) && !count_row()) return;  // a line outside skip_rows and max_rows
      ++report_.num_bad;
      if (bad_rows_.size() < kMaxExamples) bad_rows_.push_back(message);
    };
    try {
      read_json_lines(settings_.path, on_row, settings_.on_bad_row == "skip" ? BadLineReader(on_bad_line) : nullptr);
    } catch (const OverLength& refused) {
      throw base::Error(Code::invalid_argument, refused.message);
    }
  }

  // The ids of a prompt, or nothing when it is too long and dropped.
  std::optional<std::vector<int32_t>> encode(const RenderedPrompt& prompt, const std::string& where) {
    std::vector<int32_t> ids = encode_prompt(tokenizer_, prompt);
    check_nothing_lost(prompt.text, ids, tokenizer_, where);
    const auto length = static_cast<int64_t>(ids.size());
    if (length == 0) base::fail(Code::invalid_argument, "{}: the prompt has no tokens in {}", where, tokenizer_.name());
    if (settings_.max_prompt_tokens == 0 || length <= settings_.max_prompt_tokens) return ids;
    if (settings_.over_length == "error") {
      throw OverLength{fmt::format("{}: the prompt has {} tokens, more than max_prompt_tokens = {}", where, length,
                                   settings_.max_prompt_tokens)};
    }
    ++report_.num_over_length;
    return std::nullopt;
  }

  DatasetReport finish(int64_t num_kept) {
    report_.num_kept = num_kept;
    const std::string& path = report_.path;
    if (report_.num_bad > 0) {
      notice("{}: {} of {} rows could not be read and were skipped, as on_bad_row = skip says:", path, report_.num_bad,
             report_.num_rows);
      for (const std::string& message : bad_rows_) notice("  {}", message);
    }
    if (report_.num_over_length > 0) {
      notice("{}: {} of {} prompts were dropped: longer than {} tokens", path, report_.num_over_length,
             report_.num_rows, settings_.max_prompt_tokens);
    }
    if (num_kept == 0) {
      base::fail(Code::invalid_argument,
                 "{}: no row is left: {} read, {} could not be read, {} longer than max_prompt_tokens = {}", path,
                 report_.num_rows, report_.num_bad, report_.num_over_length, settings_.max_prompt_tokens);
    }
    return std::move(report_);
  }

  template <class... Args>
  void notice(fmt::format_string<Args...> text, Args&&... args) {
    report_.notices.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  DatasetReport& report() { return report_; }

 private:
  struct OverLength {  // passes the reader of bad rows: over_length decides, not on_bad_row
    std::string message;
  };

  // A setting that would be ignored is an error.
  void check_settings() const {
    if (settings_.path.empty()) base::fail(Code::invalid_argument, "the data set has no path");
    const auto refuse_if = [](bool is_set, std::string_view name, std::string_view when) {
      if (is_set) base::fail(Code::invalid_argument, "{} has no effect with {}; leave it out", name, when);
    };
    const bool raw = !settings_.apply_chat_template, chat = settings_.thinking_mode == "chat";
    refuse_if(raw && !settings_.system_prompt.empty(), "system_prompt", "apply_chat_template = false");
    refuse_if(raw && !chat, "thinking_mode", "apply_chat_template = false");
    refuse_if(chat && !settings_.reasoning_effort.empty(), "reasoning_effort", "thinking_mode = chat");
    refuse_if(chat && !settings_.drop_thinking, "drop_thinking", "thinking_mode = chat");
    refuse_if(!raw && !settings_.markers_in_raw_text, "markers_in_raw_text", "apply_chat_template = true");
  }

  // Counts the next row; whether skip_rows lets it in.
  bool count_row() {
    const bool counts =
        num_seen_++ >= settings_.skip_rows && !(settings_.max_rows > 0 && report_.num_rows == settings_.max_rows);
    report_.num_rows += counts;
    return counts;
  }
  bool is_past_the_end() const {
    return settings_.max_rows > 0 && num_seen_ >= settings_.skip_rows + settings_.max_rows;
  }

  const DatasetSettings& settings_;
  const Tokenizer& tokenizer_;
  DatasetReport report_;
  std::optional<RowKeys> keys_;
  int64_t num_seen_ = 0;
  bool in_row_ = false;  // inside make
  std::vector<std::string> bad_rows_;
};

uint64_t mix_into(uint64_t hash, const std::vector<int32_t>& ids, std::string_view text) {
  for (const int32_t id : ids) hash = base::derive_seed(hash, static_cast<uint64_t>(static_cast<uint32_t>(id)));
  return base::derive_seed(hash, text);
}

// Which prompts and labels have come already.
class Repeats {
 public:
  // Whether the same prompt with the same label came before.
  bool add(const Problem& problem) {
    Seen& seen = seen_[problem.prompt];
    const bool is_new = seen.labels.insert(problem.label).second;
    if (is_new && seen.labels.size() == 2 && contradictory_.size() < kMaxExamples) contradictory_.push_back(problem.id);
    num_contradictory_ += is_new && seen.labels.size() == 2;
    return !is_new;
  }
  int64_t num_prompts() const { return static_cast<int64_t>(seen_.size()); }
  int64_t num_contradictory() const { return num_contradictory_; }
  const std::vector<std::string>& contradictory() const { return contradictory_; }

 private:
  struct Seen {
    std::unordered_set<std::string> labels;
  };
  std::unordered_map<std::string, Seen> seen_;
  int64_t num_contradictory_ = 0;
  std::vector<std::string> contradictory_;
};

void end_with_stop(std::vector<int32_t>& ids, const Tokenizer& tokenizer, const std::string& where) {
  const std::vector<int32_t>& stops = tokenizer.stop_ids();
  const auto first = std::find_first_of(ids.begin(), ids.end(), stops.begin(), stops.end());
  if (first == ids.end()) {
    ids.push_back(stops.front());
  } else if (first + 1 != ids.end()) {
    base::fail(Code::invalid_argument, "{}: the response goes on after its token {} ({} of {})", where,
               tokenizer.token(*first), first - ids.begin() + 1, ids.size());
  }
}

}  // namespace

Dataset load_problems(const DatasetSettings& settings, const Tokenizer& tokenizer) {
  Loader loader(settings, tokenizer);
  Dataset dataset;
  Repeats repeats;
  loader.read([&](const Json& row, const RowKeys& keys, const std::string& where) {
    const RenderedPrompt prompt = prompt_of(row, keys, settings, where);
    Problem problem{id_of(row, settings, where),
                    prompt.text,
                    label_of(row, keys, settings.require_label, where),
                    metadata_of(row, keys, settings, where),
                    {}};
    std::optional<std::vector<int32_t>> ids = loader.encode(prompt, where);
    if (!ids) return;
    problem.prompt_ids = std::move(*ids);
    if (repeats.add(problem) && settings.deduplicate) {
      ++loader.report().num_duplicates;
      return;
    }
    loader.report().fingerprint = mix_into(loader.report().fingerprint, problem.prompt_ids, problem.label);
    dataset.problems.push_back(std::move(problem));
  });
  DatasetReport& report = loader.report();
  const auto num_kept = static_cast<int64_t>(dataset.problems.size());
  report.num_distinct_prompts = repeats.num_prompts();
  report.num_contradictory = repeats.num_contradictory();
  if (report.num_duplicates > 0) {
    loader.notice("{}: {} rows were dropped: their prompt and label came before", settings.path, report.num_duplicates);
  }
  if (num_kept > report.num_distinct_prompts) {
    loader.notice("{}: {} rows hold {} distinct prompts (deduplicate = true keeps one row of each prompt and label)",
                  settings.path, num_kept, report.num_distinct_prompts);
  }
  if (report.num_contradictory > 0) {
    loader.notice("{}: {} prompts have more than one label, for example at {}", settings.path, report.num_contradictory,
                  fmt::join(repeats.contradictory(), ", "));
  }
  dataset.report = loader.finish(num_kept);
  return dataset;
}

DemonstrationSet load_demonstrations(const DatasetSettings& settings, const Tokenizer& tokenizer) {
  if (tokenizer.stop_ids().empty()) {
    base::fail(Code::invalid_argument,
               "{}: names no end-of-sentence token (tokenizer_config.json, eos_token), which demonstrations "
               "end with",
               tokenizer.name());
  }
  Loader loader(settings, tokenizer);
  DemonstrationSet set;
  std::unordered_set<std::string> prompts;
  const bool as_text = !settings.apply_chat_template && !settings.markers_in_raw_text;
  loader.read([&](const Json& row, const RowKeys& keys, const std::string& where) {
    const RenderedPrompt prompt = prompt_of(row, keys, settings, where);
    const Json* const response = find_path(row, settings.response_key);
    if (response == nullptr || !response->is_string() || response->get_ref<const std::string&>().empty()) {
      base::fail(Code::corruption, "{}: the row has no response (\"{}\") that is a text", where, settings.response_key);
    }
    Demonstration demonstration{id_of(row, settings, where), prompt.text, response->get<std::string>(), {}, {}};
    std::optional<std::vector<int32_t>> ids = loader.encode(prompt, where);
    if (!ids) return;
    demonstration.prompt_ids = std::move(*ids);
    demonstration.response_ids = tokenizer.encode(demonstration.response, as_text ? Markers::as_text : Markers::as_ids);
    check_nothing_lost(demonstration.response, demonstration.response_ids, tokenizer, where);
    end_with_stop(demonstration.response_ids, tokenizer, where);
    prompts.insert(demonstration.prompt);
    loader.report().fingerprint =
        mix_into(loader.report().fingerprint, demonstration.prompt_ids, demonstration.response);
    set.demonstrations.push_back(std::move(demonstration));
  });
  loader.report().num_distinct_prompts = static_cast<int64_t>(prompts.size());
  set.report = loader.finish(static_cast<int64_t>(set.demonstrations.size()));
  return set;
}

}  // namespace data
