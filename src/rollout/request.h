// What is asked of a rollout engine and what comes back: sampling parameters, requests, outputs. Values only, no torch.
// Defaults are these structs' and nothing else's: no model file changes them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/settings.h"
#include "data/sample.h"

namespace rollout {

// A temperature below this is greedy decoding.
constexpr double kGreedyBelow = 1e-6;

struct SamplingParams {
  double temperature = 1.0;
  double top_p = 1.0;
  int64_t top_k = -1;
  double min_p = 0.0;
  int64_t max_new_tokens = 128;
  std::vector<std::string> stop;
  std::vector<int64_t> stop_token_ids;
  bool ignore_eos = false;
  bool no_stop_trim = false;

  bool greedy() const { return temperature < kGreedyBelow; }
  // By what logits are divided before the log-softmax: greedy counts as 1 (decisions 7).
  double log_prob_temperature() const { return greedy() ? 1.0 : temperature; }

  template <class V>
  void visit(V&& v) {
    v("temperature", temperature, "divides the logits; below 1e-6 the highest logit is taken (greedy)", base::Range{0});
    v("top_p", top_p, "keep the most probable tokens whose mass reaches this; 1 keeps all, 0 is refused",
      base::Range{0, 1});
    v("top_k", top_k, "keep this many of the most probable tokens; -1 keeps all, 0 is refused", base::Range{-1});
    v("min_p", min_p, "keep tokens at least this probable relative to the most probable one", base::Range{0, 1});
    v("max_new_tokens", max_new_tokens, "tokens in one answer, the stop token included", base::Range{1});
    v("stop", stop, "texts that end an answer; the text is cut before them");
    v("stop_token_ids", stop_token_ids, "token ids that end an answer, beside the model's end of sequence",
      base::Range{0});
    v("ignore_eos", ignore_eos, "go on after the model's end of sequence");
    v("no_stop_trim", no_stop_trim, "leave the matched stop text or stop token in the text");
  }

  // Error{invalid_argument} naming the field, its value and what it should be. vocab_size bounds stop_token_ids.
  void check(int64_t vocab_size) const;
};

struct Request {
  std::vector<int32_t> prompt_ids;
  SamplingParams sampling;
  int64_t num_samples = 1;      // answers to this prompt; its prefill is shared
  std::vector<uint64_t> seeds;  // one per sample, all different; empty: the engine draws them
  // Score instead of generating: log-probs of prompt_ids[1..], logits divided by input_logprob_temperature. Nothing is
  // sampled; num_samples must be 1 and of `sampling` nothing is read.
  bool score = false;
  double input_logprob_temperature = 1.0;
  bool record_experts = false;  // keep which experts each token went to
};

// Seeds of the samples of one prompt from one seed: different for each index, the same again for the same seed.
std::vector<uint64_t> group_seeds(uint64_t seed, int64_t num_samples);

// Why an answer ended.
enum class Ended { stop_token, stop_string, max_new_tokens, context, cancelled, not_finite, scored };
std::string to_string(Ended ended);
// stop for the two stops and for scored; length for the two limits; cancelled for the rest.
data::FinishReason finish_reason(Ended ended);

// One answer, or one scored prompt. Vectors marked L have one element per token of response_ids.
struct Output {
  int64_t request = 0;                // what submit() returned
  int64_t index = 0;                  // sample of the request
  uint64_t seed = 0;                  // of the sampling noise, drawn by the engine or given
  std::vector<int32_t> response_ids;  // L, the stop token included
  std::vector<float> log_probs;       // L, by decisions 7, floored at kLowestLogProb
  std::vector<int64_t> versions;      // L, version of the weights that wrote the token
  std::string text;                   // decoded, without the stop token and what follows from a stop text on; UTF-8
  bool text_cut = false;              // text ends before a stop text
  Ended ended = Ended::cancelled;
  int64_t matched_token = -1;   // stop_token: which
  std::string matched_text;     // stop_string: which
  std::string error;            // not_finite: what was found
  int64_t version = -1;         // that served when it ended; wrote all of prompt_log_probs
  int64_t num_retractions = 0;  // times its cache was taken away, to be prefilled again
  bool mixed_cache = false;     // tokens were drawn from a cache that more than one version wrote
  // With record_experts: of every token that was computed (prompt and response but for the last token), layout in
  // rollout/expert_record.h.
  std::vector<uint16_t> experts;
  std::vector<float> prompt_log_probs;  // scored: element i is of prompt_ids[i + 1]
};

}  // namespace rollout
