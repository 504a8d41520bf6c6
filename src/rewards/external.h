// What rewards outside this program have in common: the request as JSON, the reply, tries with backoff under one
// deadline. Request: {"id", "prompt", "response", "label", "metadata", "finish", "truncated"}. Reply: {"score": number,
// "note": text} (note may be missing); a command echoes "id", a URL may reply with a bare number.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "rewards/reward.h"

namespace rewards {

inline constexpr size_t kMaxReplyBytes = 1 << 20;
inline constexpr double kPollSlice_s = 0.05;  // how long anything waits before it asks whether to stop

std::string request_json(int64_t id, const data::Problem& problem, const data::Sample& sample);

// What came of one try: a score, or why there is none and whether another try may help.
struct Try {
  bool ok = false;
  Score score;
  std::string why;
  bool retry = true;
};
Try failed_try(std::string why, bool retry = true);

// Parses a reply; expected_id < 0: no id is asked for. A score that is missing, no number or not finite is a failed
// try.
Try parse_reply(std::string_view text, int64_t expected_id);

// Calls attempt(seconds it may take) until one is ok, retries are used up, the deadline is near or stop says true. If
// none was ok: settings.failure_value, with a note that names it, the number of tries and the last reason.
Score score_with_retries(const RewardSettings& settings, const base::Clock& clock, const StopAsked& stop,
                         const std::function<Try(double timeout_s)>& attempt);

}  // namespace rewards
