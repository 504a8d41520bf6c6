#include "base/http.h"

#include <gtest/gtest.h>

#include <atomic>

#include "rewards/loopback_server.h"

namespace base {
namespace {

using Outcome = HttpResult::Outcome;
using rewards::HttpReply;
using rewards::LoopbackServer;

const std::function<bool()> kNever = [] { return false; };

TEST(Http, PostsTheBodyAndGivesStatusAndReplyOverOneConnection) {
  LoopbackServer server([](const std::string& body) { return HttpReply{body == "again" ? 503 : 200, body + "!"}; });
  HttpConnection connection(server.url(), 1 << 20);
  const std::string large(300'000, 'x');
  for (const std::string& body : {std::string("{}"), large, std::string("again")}) {
    const HttpResult result = connection.post(body, 10, kNever);
    EXPECT_EQ(result.outcome, Outcome::replied);
    EXPECT_EQ(result.body, body + "!");
    EXPECT_EQ(result.status, body == "again" ? 503 : 200);
  }
  EXPECT_EQ(server.last_target(), "/score");
}

TEST(Http, ALongReplyIsCutOff) {
  LoopbackServer server([](const std::string&) { return HttpReply{200, std::string(5000, 'x')}; });
  HttpConnection connection(server.url(), 4999);
  EXPECT_EQ(connection.post("{}", 10, kNever).outcome, Outcome::too_long);
  HttpConnection larger(server.url(), 5000);
  EXPECT_EQ(larger.post("{}", 10, kNever).outcome, Outcome::replied);
}

TEST(Http, ASlowServerRunsOutOfTimeOrIsStopped) {
  std::atomic<bool> asked = false;
  LoopbackServer server([&](const std::string&) {
    asked = true;
    return HttpReply{200, "", 30};
  });
  HttpConnection connection(server.url(), 100);
  EXPECT_EQ(connection.post("{}", 0.1, kNever).outcome, Outcome::timed_out);
  asked = false;
  EXPECT_EQ(connection.post("{}", 30, [&] { return asked.load(); }).outcome, Outcome::stopped);
}

TEST(Http, NoServerAndOtherSchemesFailWithAReason) {
  std::string url;
  {
    LoopbackServer server([](const std::string&) { return HttpReply{}; });
    url = server.url();
  }
  HttpConnection gone(url, 100);
  const HttpResult result = gone.post("{}", 10, kNever);
  EXPECT_EQ(result.outcome, Outcome::failed);
  EXPECT_FALSE(result.error.empty());
  HttpConnection file("file:///etc/hostname", 100);
  EXPECT_EQ(file.post("{}", 10, kNever).outcome, Outcome::failed);
}

}  // namespace
}  // namespace base
