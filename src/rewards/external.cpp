// JSON of requests and replies, and the loop of tries.
#include "rewards/external.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "rewards/answer_text.h"

namespace rewards {
namespace {

// Sleeps up to seconds; false as soon as stop says true.
bool sleep_unless_stopped(double seconds, const base::Clock& clock, const StopAsked& stop) {
  const double until = clock.now_s() + seconds;
  for (double left = seconds; left > 0; left = until - clock.now_s()) {
    if (stop()) return false;
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, kPollSlice_s)));
  }
  return !stop();
}

}  // namespace

std::string request_json(int64_t id, const data::Problem& problem, const data::Sample& sample) {
  base::Json request;
  request["id"] = id;
  request["prompt"] = problem.prompt;
  request["response"] = sample.response;
  request["label"] = problem.label;
  request["metadata"] = problem.metadata;
  request["finish"] = data::to_string(sample.finish);
  request["truncated"] = sample.finish == data::FinishReason::length;
  return base::to_line(request);
}

Try failed_try(std::string why, bool retry) { return {false, {}, std::move(why), retry}; }

Try parse_reply(std::string_view text, int64_t expected_id) {
  base::Json reply;
  try {
    reply = base::parse_json(text, "reply");
  } catch (const base::Error&) {
    return failed_try(fmt::format("the reply is not JSON: \"{}\"", shown(text)));
  }
  Try result{true, {}, {}, false};
  base::Json score = reply;
  if (reply.is_object()) {
    if (expected_id >= 0 && (!reply.contains("id") || reply["id"] != expected_id)) {
      return failed_try(fmt::format("the reply does not echo \"id\": {}: \"{}\"", expected_id, shown(text)));
    }
    score = reply.contains("score") ? reply["score"] : base::Json();
    if (reply.contains("note") && reply["note"].is_string())
      result.score.note = shown(reply["note"].get<std::string>());
  } else if (expected_id >= 0) {
    return failed_try(fmt::format("the reply is not a JSON object: \"{}\"", shown(text)));
  }
  if (score.is_boolean()) {
    result.score.value = score.get<bool>() ? 1 : 0;
  } else if (score.is_number() && std::isfinite(score.get<double>())) {
    result.score.value = score.get<double>();
  } else {
    return failed_try(fmt::format("the reply has no finite \"score\": \"{}\"", shown(text)));
  }
  return result;
}

Score score_with_retries(const RewardSettings& settings, const base::Clock& clock, const StopAsked& stop,
                         const std::function<Try(double timeout_s)>& attempt) {
  const double deadline = clock.now_s() + settings.deadline_s;
  std::string why = "no try was made";
  int64_t tries = 0;
  double backoff = settings.backoff_s;
  while (tries <= settings.retries) {
    const double left = deadline - clock.now_s();
    if (left <= 0 || stop()) break;
    const Try result = attempt(std::min(left, settings.try_timeout_s));
    ++tries;
    if (result.ok) return result.score;
    why = result.why;
    if (!result.retry || tries > settings.retries) break;
    if (clock.now_s() + backoff >= deadline || !sleep_unless_stopped(backoff, clock, stop)) break;
    backoff *= 2;
  }
  return {settings.failure_value,
          fmt::format("not scored, counted as {} (failure_value) after {} tr{}: {}", settings.failure_value, tries,
                      tries == 1 ? "y" : "ies", why),
          Outcome::failed};
}

}  // namespace rewards
