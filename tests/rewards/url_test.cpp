#include "rewards/url.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/json.h"
#include "rewards/answer_text.h"
#include "rewards/golden.h"
#include "rewards/loopback_server.h"

namespace rewards {
namespace {

RewardSettings settings_for(const LoopbackServer& server) {
  RewardSettings settings;
  settings.kind = "url";
  settings.url = server.url();
  settings.try_timeout_s = 5;
  settings.deadline_s = 10;
  settings.backoff_s = 0.01;
  settings.failure_value = -0.5;
  return settings;
}

const StopAsked kNever = [] { return false; };

TEST(Url, PostsTheTextsAndTakesTheScoreAndTheNote) {
  std::string seen;
  LoopbackServer server([&](const std::string& body) {
    seen = body;
    return HttpReply{200, R"({"score": 0.25, "note": "a quarter"})"};
  });
  UrlScorer scorer(settings_for(server));
  data::Problem problem = problem_with("34", "What is 30+4?");
  problem.metadata["kind"] = "sum";
  const std::string long_response = "It is \"34\"\n" + std::string(200'000, 'x');  // larger than a socket buffer
  const Score score = scorer.score(problem, answer(long_response, data::FinishReason::length), kNever);
  EXPECT_EQ(score.value, 0.25);
  EXPECT_EQ(score.note, "a quarter");
  EXPECT_EQ(score.outcome, Outcome::graded);
  const base::Json request = base::parse_json(seen, "request");
  EXPECT_EQ(request["prompt"], "What is 30+4?");
  EXPECT_EQ(request["response"], long_response);
  EXPECT_EQ(request["label"], "34");
  EXPECT_EQ(request["metadata"]["kind"], "sum");
  EXPECT_EQ(request["truncated"], true);
}

TEST(Url, ABareNumberIsAScore) {
  LoopbackServer server([](const std::string&) { return HttpReply{200, " 1 \n"}; });
  UrlScorer scorer(settings_for(server));
  EXPECT_EQ(scorer.score(problem_with("1"), answer("1"), kNever).value, 1);
}

TEST(Url, ABusyServerIsTriedAgainAndARefusalIsNot) {
  std::atomic<int> calls = 0;
  LoopbackServer busy([&](const std::string&) { return ++calls < 3 ? HttpReply{503, "later"} : HttpReply{200, "1"}; });
  UrlScorer patient(settings_for(busy));
  EXPECT_EQ(patient.score(problem_with("1"), answer("1"), kNever).value, 1);
  EXPECT_EQ(busy.requests(), 3);

  LoopbackServer refusing([](const std::string&) { return HttpReply{404, "no such page"}; });
  UrlScorer refused(settings_for(refusing));
  const Score score = refused.score(problem_with("1"), answer("1"), kNever);
  EXPECT_EQ(score.value, -0.5);
  EXPECT_EQ(score.outcome, Outcome::failed);
  EXPECT_NE(score.note.find("404"), std::string::npos) << score.note;
  EXPECT_NE(score.note.find("failure_value"), std::string::npos) << score.note;
  EXPECT_EQ(refusing.requests(), 1);
}

TEST(Url, RepliesThatAreNoScoreAreFailures) {
  std::string body;
  LoopbackServer server([&](const std::string&) { return HttpReply{200, body}; });
  RewardSettings settings = settings_for(server);
  settings.retries = 0;
  UrlScorer scorer(settings);
  for (const std::string& reply :
       {std::string("nan"), std::string("{}"), std::string("{\"score\": \"1\"}"), std::string("{\"score\": 1e999}"),
        std::string(), std::string("[1]"), std::string(3 << 20, '1'), std::string(100'000, '['),
        std::string("{\"score\": null}")}) {
    body = reply;
    const Score score = scorer.score(problem_with("1"), answer("1"), kNever);
    EXPECT_EQ(score.outcome, Outcome::failed) << shown(reply);
    EXPECT_LT(score.note.size(), 400U);
  }
}

TEST(Url, ASlowServerCostsTheDeadlineAndNoMore) {
  LoopbackServer server([](const std::string&) { return HttpReply{200, "1", 30}; });
  RewardSettings settings = settings_for(server);
  settings.try_timeout_s = 0.2;
  settings.deadline_s = 0.5;
  settings.retries = 50;
  UrlScorer scorer(settings);
  const base::Clock clock;
  const double start = clock.now_s();
  const Score score = scorer.score(problem_with("1"), answer("1"), kNever);
  EXPECT_EQ(score.outcome, Outcome::failed);
  EXPECT_NE(score.note.find("no reply within"), std::string::npos) << score.note;
  EXPECT_LT(clock.now_s() - start, 3) << "0.5 s of deadline, and slack for a busy machine";
  EXPECT_GE(server.requests(), 2);
}

TEST(Url, StopEndsTheWaitAtOnce) {
  LoopbackServer server([](const std::string&) { return HttpReply{200, "1", 30}; });
  RewardSettings settings = settings_for(server);
  settings.try_timeout_s = settings.deadline_s = 30;
  UrlScorer scorer(settings);
  const base::Clock clock;
  const double start = clock.now_s();
  EXPECT_EQ(scorer.score(problem_with("1"), answer("1"), [&] { return clock.now_s() > start + 0.2; }).outcome,
            Outcome::failed);
  EXPECT_LT(clock.now_s() - start, 5);
}

TEST(Url, NobodyListeningIsAFailureWithTheReason) {
  std::string url;
  {
    url = LoopbackServer([](const std::string&) { return HttpReply{}; }).url();
  }
  RewardSettings settings;
  settings.kind = "url";
  settings.url = url;
  settings.backoff_s = 0.01;
  UrlScorer scorer(settings);
  const Score score = scorer.score(problem_with("1"), answer("1"), kNever);
  EXPECT_EQ(score.outcome, Outcome::failed);
  EXPECT_NE(score.note.find("after 3 tries"), std::string::npos) << score.note;
}

}  // namespace
}  // namespace rewards
