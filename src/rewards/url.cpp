// One try: a POST, and what its outcome means.
#include "rewards/url.h"

#include "base/error.h"
#include "rewards/answer_text.h"

namespace rewards {
namespace {

bool worth_another_try(int status) { return status == 408 || status == 429 || status >= 500; }

}  // namespace

UrlScorer::UrlScorer(RewardSettings settings)
    : settings_(std::move(settings)), connection_(settings_.url, kMaxReplyBytes) {}

Score UrlScorer::score(const data::Problem& problem, const data::Sample& sample, const StopAsked& stop) {
  const std::string request = request_json(next_id_++, problem, sample);
  return score_with_retries(settings_, clock_, stop,
                            [&](double timeout_s) { return attempt(request, timeout_s, stop); });
}

Try UrlScorer::attempt(const std::string& request, double timeout_s, const StopAsked& stop) {
  using Ended = base::HttpResult::Outcome;
  const base::HttpResult result = connection_.post(request, timeout_s, stop);
  switch (result.outcome) {
    case Ended::stopped:
      return failed_try("the run is stopping", false);
    case Ended::timed_out:
      return failed_try(fmt::format("no reply within {:.3g} s", timeout_s));
    case Ended::too_long:
      return failed_try(fmt::format("the reply has more than {} bytes", kMaxReplyBytes));
    case Ended::failed:
      return failed_try(fmt::format("{}: {}", settings_.url, result.error));
    case Ended::replied:
      break;
  }
  if (result.status == 200) return parse_reply(result.body, -1);
  return failed_try(fmt::format("HTTP status {}: \"{}\"", result.status, shown(strip(result.body))),
                    worth_another_try(result.status));
}

}  // namespace rewards
