// A server that speaks SGLang's /generate route: POST {"input_ids", "sampling_params", "return_logprob": true,
// "logprob_start_len": 0}, answered by meta_info.input_token_logprobs, [[log-prob | null, id, text | null], ..].
//
// SGLang computes a prompt's log-probs at temperature 1, whatever sampling_params say (sgl-project/sglang#36213,
// radixark/miles#1345). Other temperatures are asked for by input_logprob_temperature, and refused when the server's
// answer shows that it does not know the field.
#pragma once
#include "base/http.h"
#include "compare/side.h"

namespace compare {

class ServerSide : public Side {
 public:
  // url: without the route.
  ServerSide(std::string url, double timeout_s);

  const std::string& name() const override { return url_; }
  // Errors: unavailable (no reply, another status, a request that ended as aborted), corruption (a reply of another
  // form or for other ids), invalid_argument (a temperature that the server does not apply); each names the URL.
  std::vector<LogProbs> score(std::span<const Sequence> sequences, double temperature, const Watch& watch) override;

 private:
  LogProbs ask(const Sequence& sequence, std::optional<double> temperature, const Watch& watch);
  void check_temperature(std::span<const Sequence> sequences, std::span<const LogProbs> scores, double temperature,
                         const Watch& watch);

  std::string url_;
  double timeout_s_;
  base::HttpConnection connection_;
};

// The log-probs in a reply to a request with these ids. where: for messages.
LogProbs read_generate_reply(const std::string& body, const Ids& ids, const std::string& where);

}  // namespace compare
