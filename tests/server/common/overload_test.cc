#include "server/common/overload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/common/status.h"

namespace sluice {
namespace {

TEST(OverloadTest, EachLevelBeginsAtItsShareOfTheLimit) {
  int64_t resident = 0, cut = 0;
  Overload overload({.limit = 1000,
                     .resident = [&] { return resident; },
                     .cut = [&](int64_t bytes) { cut += bytes; }});
  const auto at = [&](int64_t bytes) {
    resident = bytes;
    overload.Look();
    return overload.level();
  };
  EXPECT_EQ(at(0), Overload::Level::kNone);
  EXPECT_EQ(at(849), Overload::Level::kNone);
  EXPECT_EQ(at(850), Overload::Level::kNoConnections);
  EXPECT_TRUE(overload.refuses_connections());
  EXPECT_FALSE(overload.refuses_requests());
  EXPECT_EQ(at(899), Overload::Level::kNoConnections);
  EXPECT_EQ(at(900), Overload::Level::kNoRequests);
  EXPECT_TRUE(overload.refuses_requests());
  EXPECT_EQ(at(949), Overload::Level::kNoRequests);
  EXPECT_EQ(cut, 0);
  EXPECT_EQ(at(950), Overload::Level::kCutAnswers);
  EXPECT_EQ(cut, 50);
  EXPECT_EQ(at(2000), Overload::Level::kCutAnswers);
  EXPECT_EQ(cut, 50 + 1100);
  EXPECT_EQ(at(100), Overload::Level::kNone);
  EXPECT_FALSE(overload.refuses_connections());
  overload.SetLimit(100);
  EXPECT_EQ(at(89), Overload::Level::kNoConnections);
  overload.SetLimit(1000);
  EXPECT_EQ(at(89), Overload::Level::kNone);
}

TEST(OverloadTest, ARefusalNamesTheMemoryAndTheOption) {
  Overload overload({.limit = 1000, .resident = [] { return 930; }, .cut = [](int64_t) {}});
  overload.Look();
  const absl::Status status = overload.Refusal();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(ReasonOf(status), Reason::kMemory);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("930 bytes of its limit of 1000 (server.memory.limit_bytes)"));
}

}  // namespace
}  // namespace sluice
