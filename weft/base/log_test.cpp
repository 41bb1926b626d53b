#include "weft/base/log.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace weft {
namespace {

std::string lines_of(const std::function<void()>& body) {
  ::testing::internal::CaptureStderr();
  body();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, RanksAboveTheFirstSayWarningsOnlyAndTheirNumber) {
  const auto speak = [] {
    log_info("info");
    log_warning("warning");
  };
  EXPECT_EQ(lines_of(speak), "info\nweft: warning: warning\n");
  EXPECT_EQ(lines_of([&] {
              const LogRank first(0);
              speak();
            }),
            "info\nweft: warning: warning\n");
  EXPECT_EQ(lines_of([&] {
              const LogRank second(1);
              speak();
            }),
            "weft: warning: rank 1: warning\n");
}

TEST(Log, ARankIsThatOfItsThreadOrOfTheProcess) {
  const LogRank process(2, LogRank::Scope::process);
  EXPECT_EQ(LogRank::current(), 2);
  int other = -1;
  {
    const LogRank thread(3);
    EXPECT_EQ(LogRank::current(), 3);
    std::thread([&] { other = LogRank::current(); }).join();
  }
  EXPECT_EQ(other, 2);
  EXPECT_EQ(LogRank::current(), 2);
}

}  // namespace
}  // namespace weft
