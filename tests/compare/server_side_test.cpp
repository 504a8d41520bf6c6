#include "compare/server_side.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "base/expect_error.h"
#include "base/json.h"
#include "rewards/loopback_server.h"

namespace compare {
namespace {

using base::Code;
using base::Json;
using rewards::HttpReply;
using rewards::LoopbackServer;
using test::expect_error;

const std::vector<Sequence> kSequences = {{{5, 17, 3}, "tokens:1"}, {{9, 2}, "tokens:2"}};

// Log-probs that follow from position and id, so that a mix-up would show.
double value_of(size_t position, int64_t id) {
  return -0.125 * static_cast<double>(id) - 0.5 * static_cast<double>(position);
}

// What SGLang answers, at a temperature.
Json reply_to(const Json& request, double temperature) {
  Json entries = Json::array();
  for (size_t i = 0; i < request["input_ids"].size(); ++i) {
    const int64_t id = request["input_ids"][i];
    entries.push_back({i == 0 ? Json(nullptr) : Json(value_of(i, id) / temperature), id, nullptr});
  }
  return {{"text", ""},
          {"output_ids", Json::array()},
          {"meta_info",
           {{"id", "x"},
            {"prompt_tokens", entries.size()},
            {"finish_reason", {{"type", "length"}, {"length", 0}}},
            {"input_token_logprobs", entries},
            {"output_token_logprobs", Json::array()}}}};
}

HttpReply good_reply(const std::string& body) { return {200, reply_to(base::parse_json(body, "request"), 1).dump()}; }

TEST(ServerSide, AsksTheGenerateRouteAndReadsTheLogProbs) {
  std::mutex mutex;
  std::vector<Json> requests;
  LoopbackServer server([&](const std::string& body) {
    const std::lock_guard guard(mutex);
    requests.push_back(base::parse_json(body, "request"));
    return good_reply(body);
  });
  ServerSide side(server.origin(), 10);
  const std::vector<LogProbs> scores = side.score(kSequences, 1, {});
  EXPECT_EQ(server.last_target(), "/generate");
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_EQ(scores[0],
            (LogProbs{std::nullopt, static_cast<float>(value_of(1, 17)), static_cast<float>(value_of(2, 3))}));
  EXPECT_EQ(scores[1], (LogProbs{std::nullopt, static_cast<float>(value_of(1, 2))}));
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0]["input_ids"], Json({5, 17, 3}));
  EXPECT_EQ(requests[0]["return_logprob"], true);
  EXPECT_EQ(requests[0]["logprob_start_len"], 0);
  EXPECT_EQ(requests[0]["sampling_params"]["max_new_tokens"], 0);
  EXPECT_FALSE(requests[0].contains("input_logprob_temperature"));
}

// lp-10, miles#1345: a prompt's log-probs are at temperature 1 whatever was asked for.
TEST(ServerSide, ATemperatureThatTheServerLeavesOutIsRefused) {
  LoopbackServer server([](const std::string& body) { return good_reply(body); });
  ServerSide side(server.origin(), 10);
  expect_error(Code::invalid_argument, {server.origin(), "temperature 1", "0.6", "--temperature=1"},
               [&] { side.score(kSequences, 0.6, {}); });
}

TEST(ServerSide, ATemperatureThatTheServerAppliesIsTaken) {
  LoopbackServer server([](const std::string& body) {
    const Json request = base::parse_json(body, "request");
    return HttpReply{200, reply_to(request, request.value("input_logprob_temperature", 1.0)).dump()};
  });
  ServerSide side(server.origin(), 10);
  const std::vector<LogProbs> scores = side.score(kSequences, 0.5, {});
  EXPECT_FLOAT_EQ(*scores[1][1], static_cast<float>(2 * value_of(1, 2)));
}

TEST(ServerSide, RepliesThatDoNotFitAreRefusedWithTheUrlAndTheSequence) {
  Json reply;
  std::string text;
  int status = 200;
  LoopbackServer server([&](const std::string&) { return HttpReply{status, text.empty() ? reply.dump() : text}; });
  ServerSide side(server.origin(), 10);
  const auto refused = [&](Code code, std::vector<std::string> parts) {
    parts.push_back(server.origin() + "/generate, asked for tokens:1");
    expect_error(code, parts, [&] { side.score(kSequences, 1, {}); });
  };
  const Json good = reply_to({{"input_ids", {5, 17, 3}}}, 1);
  const auto entries = [&]() -> Json& { return reply["meta_info"]["input_token_logprobs"]; };

  reply = good;
  entries()[2][1] = 4;
  refused(Code::corruption, {"input_token_logprobs[2]", "id 4", "asked was 3"});
  reply = good;
  entries().erase(2);
  refused(Code::corruption, {"2 entries for 3 ids"});
  reply = good;
  entries()[0][0] = -1;
  refused(Code::corruption, {"input_token_logprobs[0]", "should be null"});
  reply = good;
  entries()[1][0] = "x";
  refused(Code::corruption, {"input_token_logprobs[1]", "no finite number"});
  reply = good;
  entries()[1] = -1;
  refused(Code::corruption, {"input_token_logprobs[1]", "[log-prob, id, text]"});
  reply = good;
  reply["meta_info"].erase("input_token_logprobs");
  refused(Code::corruption, {"input_token_logprobs"});
  reply = good;
  reply["meta_info"]["finish_reason"] = {{"type", "abort"}, {"message", "shutting down"}};
  refused(Code::unavailable, {"gave the request up", "shutting down"});
  reply = {{"error", {{"message", "no such model"}}}};
  refused(Code::corruption, {"meta_info"});
  text = "{\"meta_info\": ";
  refused(Code::corruption, {});
  text = "{\"error\": \"too long\"}";
  status = 400;
  refused(Code::unavailable, {"HTTP status 400", "too long"});
}

TEST(ServerSide, NoServerAndASlowOneAreErrorsWithTheUrl) {
  std::string origin;
  {
    LoopbackServer gone([](const std::string& body) { return good_reply(body); });
    origin = gone.origin();
  }
  ServerSide nobody(origin, 10);
  expect_error(Code::unavailable, {origin, "tokens:1"}, [&] { nobody.score(kSequences, 1, {}); });
  LoopbackServer slow([](const std::string&) { return HttpReply{200, "{}", 30}; });
  ServerSide waiting(slow.origin(), 0.2);
  expect_error(Code::unavailable, {slow.origin(), "no reply within 0.2 s", "--request_timeout_s"},
               [&] { waiting.score(kSequences, 1, {}); });
}

TEST(ServerSide, StopsInTheMiddleOfARequest) {
  std::atomic<int> asked = 0;
  LoopbackServer slow([&](const std::string&) {
    ++asked;
    return HttpReply{200, "{}", 30};
  });
  ServerSide side(slow.origin(), 60);
  const Watch watch{[](std::string_view, int64_t, int64_t) {}, [&] { return asked > 0; }};
  EXPECT_THROW(side.score(kSequences, 1, watch), Stopped);
}

}  // namespace
}  // namespace compare
