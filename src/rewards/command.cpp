// One try is one exchange of lines; whatever goes wrong costs the process its life.
#include "rewards/command.h"

#include "base/error.h"
#include "rewards/answer_text.h"

namespace rewards {
namespace {

std::string with_errors(std::string what, const ChildProcess& child) {
  const std::string_view errors = strip(child.last_errors());
  if (errors.empty()) return what;
  const size_t last_line = errors.rfind('\n');
  const std::string_view line = last_line == std::string_view::npos ? errors : errors.substr(last_line + 1);
  return what + "; the end of its standard error: \"" + shown(line) + "\"";
}

}  // namespace

Score CommandScorer::score(const data::Problem& problem, const data::Sample& sample, const StopAsked& stop) {
  const int64_t id = next_id_++;
  const std::string request = request_json(id, problem, sample);
  return score_with_retries(settings_, clock_, stop,
                            [&](double timeout_s) { return attempt(request, id, timeout_s, stop); });
}

Try CommandScorer::attempt(const std::string& request, int64_t id, double timeout_s, const StopAsked& stop) {
  if (!child_) {
    try {
      child_ = std::make_unique<ChildProcess>(settings_.command);
    } catch (const base::Error& error) {
      return failed_try(error.what());
    }
  }
  using Ending = ChildProcess::Ending;
  const ChildProcess::Reply reply = child_->exchange(request, kMaxReplyBytes, timeout_s, stop);
  Try result;
  switch (reply.ending) {
    case Ending::line:
      result = parse_reply(reply.line, id);
      if (result.ok && child_->has_unread_output()) result = failed_try("it printed more than one line for one answer");
      break;
    case Ending::timed_out:
      result = failed_try(fmt::format("no reply within {:.3g} s", timeout_s));
      break;
    case Ending::ended:
      result = failed_try("it ended without a reply");
      break;
    case Ending::too_long:
      result = failed_try(fmt::format("it printed a line of more than {} bytes", kMaxReplyBytes));
      break;
    case Ending::stopped:
      result = failed_try("the run is stopping", false);
      break;
  }
  if (!result.ok) {
    result.why = with_errors(result.why, *child_);
    child_.reset();
  }
  return result;
}

}  // namespace rewards
