// Requests, one after the other, and what may be wrong with the replies.
#include "compare/server_side.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "data/json_fields.h"
#include "report/text_chart.h"

namespace compare {
namespace {

using base::Code;
using base::Json;

constexpr size_t kMaxReplyBytes = size_t{1} << 28;
constexpr size_t kShownBytes = 300;  // of a reply, in messages
constexpr double kLeastShare = 0.1;  // of the change that another temperature makes, by which it is recognised

void check_finish(const Json& meta, const std::string& where) {
  const Json* const reason = data::find_member(meta, "finish_reason", where);
  if (reason == nullptr || !reason->is_object()) return;
  if (reason->value("type", Json()) == "abort") {
    base::fail(Code::unavailable, "{}: the server gave the request up: {}", where,
               report::one_line(base::to_line(*reason), kShownBytes));
  }
}

std::optional<float> read_entry(const Json& entry, int32_t id, const std::string& where) {
  if (!entry.is_array() || entry.size() < 2) {
    base::fail(Code::corruption, "{}: is {} and should be [log-prob, id, text]", where,
               report::one_line(base::to_line(entry), kShownBytes));
  }
  if (!entry[1].is_number_integer() || entry[1] != id) {
    base::fail(Code::corruption, "{}: is about id {}, asked was {}", where, base::to_line(entry[1]).substr(0, 80), id);
  }
  if (entry[0].is_null()) return std::nullopt;
  const double value = entry[0].is_number() ? entry[0].get<double>() : NAN;
  if (!std::isfinite(value)) {
    base::fail(Code::corruption, "{}: the log-prob is {}, which is no finite number", where,
               base::to_line(entry[0]).substr(0, 80));
  }
  return static_cast<float>(value);
}

}  // namespace

LogProbs read_generate_reply(const std::string& body, const Ids& ids, const std::string& where) {
  const Json json = base::parse_json(body, where);
  const Json& meta = data::member(json, "meta_info", where);
  check_finish(meta, where);
  const Json& entries = data::array_member(meta, "input_token_logprobs", where + ": meta_info");
  if (entries.size() != ids.size()) {
    base::fail(Code::corruption,
               "{}: input_token_logprobs has {} entries for {} ids (logprob_start_len 0 asks for all of them)", where,
               entries.size(), ids.size());
  }
  LogProbs log_probs;
  for (size_t i = 0; i < ids.size(); ++i) {
    log_probs.push_back(read_entry(entries[i], ids[i], fmt::format("{}: input_token_logprobs[{}]", where, i)));
  }
  if (log_probs.front()) {
    base::fail(Code::corruption,
               "{}: input_token_logprobs[0] is {} and should be null: nothing stands before the first token", where,
               *log_probs.front());
  }
  return log_probs;
}

ServerSide::ServerSide(std::string url, double timeout_s)
    : url_(std::move(url)), timeout_s_(timeout_s), connection_(url_ + "/generate", kMaxReplyBytes) {}

LogProbs ServerSide::ask(const Sequence& sequence, std::optional<double> temperature, const Watch& watch) {
  Json request = {{"input_ids", sequence.ids},
                  {"sampling_params", {{"max_new_tokens", 0}, {"temperature", 1.0}}},
                  {"return_logprob", true},
                  {"logprob_start_len", 0},
                  {"stream", false}};
  if (temperature) request["input_logprob_temperature"] = *temperature;
  using Outcome = base::HttpResult::Outcome;
  const base::HttpResult result = connection_.post(request.dump(), timeout_s_, watch.stop);
  const std::string where = fmt::format("{}/generate, asked for {}", url_, sequence.where);
  switch (result.outcome) {
    case Outcome::stopped:
      throw Stopped();
    case Outcome::timed_out:
      base::fail(Code::unavailable, "{}: no reply within {:g} s (--request_timeout_s)", where, timeout_s_);
    case Outcome::too_long:
      base::fail(Code::corruption, "{}: the reply has more than {} bytes", where, kMaxReplyBytes);
    case Outcome::failed:
      base::fail(Code::unavailable, "{}: {}", where, result.error);
    case Outcome::replied:
      break;
  }
  if (result.status != 200) {
    base::fail(Code::unavailable, "{}: HTTP status {}: {}", where, result.status,
               report::one_line(result.body, kShownBytes));
  }
  return read_generate_reply(result.body, sequence.ids, where);
}

std::vector<LogProbs> ServerSide::score(std::span<const Sequence> sequences, double temperature, const Watch& watch) {
  const int64_t total = num_tokens(sequences);
  std::vector<LogProbs> scores;
  int64_t done = 0;
  const std::optional<double> asked = temperature == 1 ? std::nullopt : std::optional(temperature);
  for (const Sequence& sequence : sequences) {
    watch.update(url_, done, total);
    scores.push_back(ask(sequence, asked, watch));
    done += static_cast<int64_t>(sequence.ids.size());
  }
  if (asked) check_temperature(sequences, scores, temperature, watch);
  return scores;
}

// A server that does not know the field leaves it out: its answer is then the one without it, but for noise. One that
// knows it moves log-probs by something like their size times |1 / temperature - 1|.
void ServerSide::check_temperature(std::span<const Sequence> sequences, std::span<const LogProbs> scores,
                                   double temperature, const Watch& watch) {
  const auto longest = std::max_element(sequences.begin(), sequences.end(), [](const Sequence& a, const Sequence& b) {
    return a.ids.size() < b.ids.size();
  });
  if (longest == sequences.end() || longest->ids.size() < 2) return;
  const LogProbs plain = ask(*longest, std::nullopt, watch);
  const LogProbs& tempered = scores[static_cast<size_t>(longest - sequences.begin())];
  double moved = 0, size = 0;
  for (size_t i = 1; i < plain.size(); ++i) {
    if (!plain[i] || !tempered[i]) continue;
    moved += std::abs(double{*plain[i]} - double{*tempered[i]});
    size += std::abs(double{*plain[i]});
  }
  if (moved > kLeastShare * std::abs(1 / temperature - 1) * size) return;
  base::fail(
      Code::invalid_argument,
      "{}: gives a prompt's log-probs at temperature 1 whatever input_logprob_temperature says (asked: {}); compare "
      "at --temperature=1",
      url_, temperature);
}

}  // namespace compare
