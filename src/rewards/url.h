// A user's own reward as a URL: one POST of JSON for each answer (see rewards/external.h). The connection is kept open.
// No proxy, no redirects, http and https only; a reply of more than 1 MiB is a failed try. Statuses 408, 429 and 5xx
// and connections that fail are tried again, other statuses than 200 are not.
#pragma once
#include "base/clock.h"
#include "base/http.h"
#include "rewards/external.h"

namespace rewards {

class UrlScorer : public Scorer {
 public:
  explicit UrlScorer(RewardSettings settings);
  Score score(const data::Problem& problem, const data::Sample& sample, const StopAsked& stop) override;

 private:
  Try attempt(const std::string& request, double timeout_s, const StopAsked& stop);

  RewardSettings settings_;
  base::Clock clock_;
  base::HttpConnection connection_;
  int64_t next_id_ = 0;
};

}  // namespace rewards
