// The program comparing: exit codes as a shell sees them, and Ctrl-C while it waits for a server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "checkpoint/folders.h"
#include "checkpoint/save.h"
#include "checkpoint/temporary_folder.h"
#include "e2e/program.h"
#include "rewards/loopback_server.h"

namespace {

using testing::HasSubstr;

class CompareProgram : public testing::Test {
 protected:
  CompareProgram() {
    checkpoint::save_weights(folder_ / "m", test::tiny_weights(), checkpoint::SaveAs::bf16);
    base::write_file_atomic(folder_ / "tokens.jsonl", "{\"ids\": [5, 17, 3, 9]}\n");
  }
  std::vector<std::string> call(const std::string& a, const std::string& b) const {
    return {"compare", a, b, "--tokens=" + (folder_ / "tokens.jsonl").string()};
  }
  std::string model() const { return (folder_ / "m").string(); }
  test::TemporaryFolder folder_;
};

TEST_F(CompareProgram, ExitCodesTellEqualFromDifferentFromWrong) {
  const auto code = [&](const std::string& a, const std::string& b) {
    return e2e::run_program(call(a, b), folder_ / "log").code;
  };
  EXPECT_EQ(code("engine:bf16@" + model(), "actor:bf16@" + model()), 0);
  EXPECT_EQ(code("bf16@" + model(), model()), 1);
  EXPECT_EQ(code(model(), "nowhere"), 2);
}

TEST_F(CompareProgram, CtrlCEndsAWaitForAServer) {
  std::atomic<bool> asked = false;
  rewards::LoopbackServer server([&](const std::string&) {
    asked = true;
    return rewards::HttpReply{200, "{}", 60};
  });
  e2e::Program program(call(server.origin(), model()), folder_ / "log");
  while (!asked && program.runs_longer_than(0.01)) continue;
  program.send(SIGINT);
  EXPECT_EQ(program.wait(), 128 + SIGINT);
  EXPECT_THAT(program.output(), HasSubstr("stopped"));
}

}  // namespace
