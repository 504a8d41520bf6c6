// Signals to this very process; the ones that end it run in a child (a death test).
#include "base/stop.h"

#include <csignal>

#include "base/expect_error.h"

namespace {

TEST(StopSignals, TheFirstSignalIsRememberedAndTheProgramGoesOn) {
  base::StopSignals stop;
  EXPECT_FALSE(stop.requested());
  EXPECT_EQ(stop.exit_code(), 0);
  std::raise(SIGTERM);
  EXPECT_TRUE(stop.requested());
  EXPECT_EQ(stop.signal(), SIGTERM);
  EXPECT_EQ(stop.exit_code(), 143);
}

TEST(StopSignals, ANewOneStartsWithoutTheWishOfTheOld) {
  {
    base::StopSignals stop;
    std::raise(SIGINT);
  }
  EXPECT_FALSE(base::StopSignals().requested());
}

TEST(StopSignalsDeathTest, TheSecondSignalEndsTheProgramAtOnce) {
  const auto twice = [] {
    base::StopSignals stop;
    std::raise(SIGINT);
    std::raise(SIGINT);
  };
  EXPECT_EXIT(twice(), testing::ExitedWithCode(130), "stopping when the step in flight allows it");
}

TEST(StopSignalsDeathTest, AfterItsEndASignalKillsAgain) {
  const auto after = [] {
    { base::StopSignals stop; }
    std::raise(SIGTERM);
  };
  EXPECT_EXIT(after(), testing::KilledBySignal(SIGTERM), "");
}

TEST(StopSignals, TwoAtATimeAreOurBug) {
  base::StopSignals stop;
  test::expect_error(base::Code::internal, {"second StopSignals"}, [] { base::StopSignals again; });
  std::raise(SIGINT);
  EXPECT_TRUE(stop.requested()) << "the first one still holds the signals";
}

}  // namespace
