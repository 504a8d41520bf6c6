// libcurl's multi interface, because it lets us wait in slices and stop at once.
#include "rewards/url.h"

#include <curl/curl.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "rewards/answer_text.h"

namespace rewards {
namespace {

void start_curl_once() {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (started != CURLE_OK) base::fail(base::Code::internal, "libcurl does not start: {}", curl_easy_strerror(started));
}

struct Body {
  std::string text;
  bool too_long = false;
};

size_t take_body(const char* data, size_t size, size_t count, void* to) {
  auto* const body = static_cast<Body*>(to);
  if (body->text.size() + size * count > kMaxReplyBytes) {
    body->too_long = true;
    return 0;  // ends the transfer
  }
  body->text.append(data, size * count);
  return size * count;
}

bool worth_another_try(long status) { return status == 408 || status == 429 || status >= 500; }

}  // namespace

struct UrlScorer::Connection {
  CURL* easy = curl_easy_init();
  CURLM* multi = curl_multi_init();
  curl_slist* headers = curl_slist_append(nullptr, "Content-Type: application/json");

  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    curl_easy_cleanup(easy);
    curl_multi_cleanup(multi);
    curl_slist_free_all(headers);
  }

  // The result of the transfer, or nullopt if it was stopped or ran out of time.
  std::optional<CURLcode> perform(const base::Clock& clock, double timeout_s, const StopAsked& stop) {
    const double deadline = clock.now_s() + timeout_s;
    curl_multi_add_handle(multi, easy);
    std::optional<CURLcode> result;
    while (!result && !stop() && clock.now_s() < deadline) {
      int running = 0, messages = 0;
      curl_multi_perform(multi, &running);
      while (const CURLMsg* const message = curl_multi_info_read(multi, &messages)) {
        if (message->msg == CURLMSG_DONE) result = message->data.result;
      }
      const double wait_s = std::min(deadline - clock.now_s(), kPollSlice_s);
      if (!result && wait_s > 0) curl_multi_poll(multi, nullptr, 0, static_cast<int>(wait_s * 1000) + 1, nullptr);
    }
    curl_multi_remove_handle(multi, easy);
    return result;
  }
};

UrlScorer::UrlScorer(RewardSettings settings) : settings_(std::move(settings)) {
  start_curl_once();
  connection_ = std::make_unique<Connection>();
  CURL* const easy = connection_->easy;
  curl_easy_setopt(easy, CURLOPT_URL, settings_.url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_PROXY, "");
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, connection_->headers);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
}

UrlScorer::~UrlScorer() = default;

Score UrlScorer::score(const data::Problem& problem, const data::Sample& sample, const StopAsked& stop) {
  const std::string request = request_json(next_id_++, problem, sample);
  return score_with_retries(settings_, clock_, stop,
                            [&](double timeout_s) { return attempt(request, timeout_s, stop); });
}

Try UrlScorer::attempt(const std::string& request, double timeout_s, const StopAsked& stop) {
  CURL* const easy = connection_->easy;
  Body body;
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &body);
  curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.size()));
  curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request.data());
  const std::optional<CURLcode> result = connection_->perform(clock_, timeout_s, stop);
  if (!result) {
    return stop() ? failed_try("the run is stopping", false)
                  : failed_try(fmt::format("no reply within {:.3g} s", timeout_s));
  }
  if (body.too_long) return failed_try(fmt::format("the reply has more than {} bytes", kMaxReplyBytes));
  if (*result != CURLE_OK) return failed_try(fmt::format("{}: {}", settings_.url, curl_easy_strerror(*result)));
  long status = 0;
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  if (status != 200) {
    return failed_try(fmt::format("HTTP status {}: \"{}\"", status, shown(strip(body.text))),
                      worth_another_try(status));
  }
  return parse_reply(body.text, -1);
}

}  // namespace rewards
