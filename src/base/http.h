// POST of JSON over HTTP: one request at a time, over a connection that is kept open. No proxy, no redirects, http and
// https only.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"

namespace base {

struct HttpResult {
  enum class Outcome { replied, stopped, timed_out, too_long, failed };
  Outcome outcome = Outcome::failed;
  int status = 0;     // of a reply
  std::string body;   // of a reply
  std::string error;  // failed: what libcurl says
};

// For one thread at a time.
class HttpConnection {
 public:
  // A reply of more than max_reply_bytes is cut off as too_long.
  HttpConnection(const std::string& url, size_t max_reply_bytes);
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;
  ~HttpConnection();

  // stop is asked some twenty times a second.
  HttpResult post(const std::string& json, double timeout_s, const std::function<bool()>& stop);

 private:
  struct Curl;  // libcurl's handles
  std::unique_ptr<Curl> curl_;
  size_t max_reply_bytes_;
  Clock clock_;
};

}  // namespace base
