// libcurl's multi interface, because it lets us wait in slices and stop at once.
#include "base/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace base {
namespace {

constexpr double kSlice_s = 0.05;  // how long anything waits before it asks whether to stop

void start_curl_once() {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (started != CURLE_OK) fail(Code::internal, "libcurl does not start: {}", curl_easy_strerror(started));
}

struct Body {
  std::string text;
  size_t max_bytes = 0;
  bool too_long = false;
};

size_t take_body(const char* data, size_t size, size_t count, void* to) {
  auto* const body = static_cast<Body*>(to);
  if (body->text.size() + size * count > body->max_bytes) {
    body->too_long = true;
    return 0;  // ends the transfer
  }
  body->text.append(data, size * count);
  return size * count;
}

}  // namespace

struct HttpConnection::Curl {
  CURL* easy = curl_easy_init();
  CURLM* multi = curl_multi_init();
  curl_slist* headers = curl_slist_append(nullptr, "Content-Type: application/json");

  Curl() = default;
  Curl(const Curl&) = delete;
  Curl& operator=(const Curl&) = delete;
  ~Curl() {
    curl_easy_cleanup(easy);
    curl_multi_cleanup(multi);
    curl_slist_free_all(headers);
  }

  // The result of the transfer, or nullopt if it was stopped or ran out of time.
  std::optional<CURLcode> perform(const Clock& clock, double timeout_s, const std::function<bool()>& stop) {
    const double deadline = clock.now_s() + timeout_s;
    curl_multi_add_handle(multi, easy);
    std::optional<CURLcode> result;
    while (!result && !stop() && clock.now_s() < deadline) {
      int running = 0, messages = 0;
      curl_multi_perform(multi, &running);
      while (const CURLMsg* const message = curl_multi_info_read(multi, &messages)) {
        if (message->msg == CURLMSG_DONE) result = message->data.result;
      }
      const double wait_s = std::min(deadline - clock.now_s(), kSlice_s);
      if (!result && wait_s > 0) curl_multi_poll(multi, nullptr, 0, static_cast<int>(wait_s * 1000) + 1, nullptr);
    }
    curl_multi_remove_handle(multi, easy);
    return result;
  }
};

HttpConnection::HttpConnection(const std::string& url, size_t max_reply_bytes) : max_reply_bytes_(max_reply_bytes) {
  start_curl_once();
  curl_ = std::make_unique<Curl>();
  CURL* const easy = curl_->easy;
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_PROXY, "");
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, curl_->headers);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
}

HttpConnection::~HttpConnection() = default;

HttpResult HttpConnection::post(const std::string& json, double timeout_s, const std::function<bool()>& stop) {
  CURL* const easy = curl_->easy;
  Body body{"", max_reply_bytes_};
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &body);
  curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(json.size()));
  curl_easy_setopt(easy, CURLOPT_POSTFIELDS, json.data());
  const std::optional<CURLcode> result = curl_->perform(clock_, timeout_s, stop);
  using Outcome = HttpResult::Outcome;
  if (!result) return {stop() ? Outcome::stopped : Outcome::timed_out, 0, "", ""};
  if (body.too_long) return {Outcome::too_long, 0, "", ""};
  if (*result != CURLE_OK) return {Outcome::failed, 0, "", curl_easy_strerror(*result)};
  long status = 0;
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  return {Outcome::replied, static_cast<int>(status), std::move(body.text), ""};
}

}  // namespace base
