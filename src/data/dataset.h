// Data sets in the row forms that people have: DAPO and verl (prompt, reward_model.ground_truth), slime and Miles
// (prompt, label, metadata), plain prompt and label, and demonstrations (prompt, response). Rows become problems with
// rendered, tokenised prompts, in file order. Nothing is repaired, guessed or dropped in silence.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/settings.h"
#include "data/sample.h"
#include "data/tokenizer.h"

namespace data {

struct DatasetSettings {
  std::string path;
  std::string format = "auto";
  std::string prompt_key, label_key;
  std::string metadata_key = "metadata", tools_key = "tools", response_key = "response", id_key = "id";
  bool require_label = true;
  bool apply_chat_template = true;
  std::string thinking_mode = "chat", reasoning_effort;
  bool drop_thinking = true;
  std::string system_prompt;
  bool markers_in_raw_text = true;
  int64_t max_prompt_tokens = 0;
  std::string over_length = "drop";
  std::string on_bad_row = "error";
  bool deduplicate = false;
  int64_t skip_rows = 0, max_rows = 0;

  template <class V>
  void visit(V&& v) {
    v("path", path, "file of JSON lines, one object a line");
    v("format", format,
      "row form: verl (label at reward_model.ground_truth), slime (label), plain (label; prompts are texts), or auto: "
      "verl if the first row has reward_model.ground_truth, else slime",
      base::OneOf{"auto", "verl", "slime", "plain"});
    v("prompt_key", prompt_key, "key of the prompt, a text or a list of messages; dots go into objects; empty: prompt");
    v("label_key", label_key, "key of the expected answer; dots go into objects; empty: the form's own");
    v("metadata_key", metadata_key,
      "key of an object whose entries become the problem's metadata, beside the row's other columns");
    v("tools_key", tools_key, "key of a list of tools (or its JSON text) that the chat encoding puts into the prompt");
    v("response_key", response_key, "key of a demonstration's answer (supervised training)");
    v("id_key", id_key, "key of the row's own name; rows without one are named file:line");
    v("require_label", require_label, "a row without a label is an error; false: its label is empty");
    v("apply_chat_template", apply_chat_template,
      "render prompts by the DeepSeek-V4 chat encoding (a text is one user message); false: the prompt must be a text "
      "and is used as it is");
    v("thinking_mode", thinking_mode, "how the assistant's turn begins", base::OneOf{"chat", "thinking"});
    v("reasoning_effort", reasoning_effort,
      "empty, high, or max: a prefix that asks for the longest reasoning (thinking only)",
      base::OneOf{"", "high", "max"});
    v("drop_thinking", drop_thinking, "leave reasoning of earlier turns out of the prompt (not with tools)");
    v("system_prompt", system_prompt, "a system message for rows that begin with none (chat encoding only)");
    v("markers_in_raw_text", markers_in_raw_text,
      "with apply_chat_template = false: names of added tokens in prompts, such as <bos>, are those tokens; false: "
      "plain text");
    v("max_prompt_tokens", max_prompt_tokens, "longest prompt in tokens, after the chat encoding; 0: no limit",
      base::Range{0, 1 << 20});
    v("over_length", over_length, "what happens to a longer prompt: it is dropped and counted, or refused",
      base::OneOf{"drop", "error"});
    v("on_bad_row", on_bad_row, "a row that cannot be read is an error, or is skipped and counted",
      base::OneOf{"error", "skip"});
    v("deduplicate", deduplicate, "keep the first of rows with the same prompt and label");
    v("skip_rows", skip_rows, "rows left out at the start of the file", base::Range{0, 1e15});
    v("max_rows", max_rows, "rows read after those; 0: all", base::Range{0, 1e15});
  }
};

// What was read and what became of it; for the start of a run and its report.
struct DatasetReport {
  std::string path;
  int64_t num_rows = 0;         // read, bad ones included
  int64_t num_bad = 0;          // skipped because on_bad_row = skip
  int64_t num_over_length = 0;  // dropped
  int64_t num_duplicates = 0;   // dropped by deduplicate
  int64_t num_kept = 0;
  int64_t num_distinct_prompts = 0;  // among those kept
  int64_t num_contradictory = 0;     // prompts with more than one label
  uint64_t fingerprint = 0;          // of prompt ids and labels kept, in order: equal after a resume on the same data
  std::vector<std::string> notices;  // one line each: what a person should know (duplicates, drops, contradictions)
};

struct Dataset {
  std::vector<Problem> problems;  // in file order
  DatasetReport report;
};
struct DemonstrationSet {
  std::vector<Demonstration> demonstrations;
  DatasetReport report;
};

// Labels: a text stays byte for byte; a number becomes its shortest decimal text (34, 34.5; 27.0 is "27"; integers
// beyond 2^53 written with a fraction or exponent are refused); anything else is refused, an empty text too unless
// labels are optional. Errors: not_found; corruption or invalid_argument with file and line; invalid_argument when no
// row is left.
Dataset load_problems(const DatasetSettings& settings, const Tokenizer& tokenizer);

// Rows {prompt, response}. Names of added tokens in a response are those tokens (it is what the model should write,
// </think> included), except in raw text with markers_in_raw_text = false. The EOS is added unless it stands at the end
// already; a stop token before the end is refused. max_prompt_tokens counts the prompt alone.
DemonstrationSet load_demonstrations(const DatasetSettings& settings, const Tokenizer& tokenizer);

}  // namespace data
