#include "base/fault_injection.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class FaultTest : public ::testing::Test {
 protected:
  ~FaultTest() override { EXPECT_TRUE(SetFaults("").ok()); }

  static absl::Status Meet(FaultPoint point, const std::string& of = "") {
    return MeetFault(point, [&of](std::string_view id) { return id == of; });
  }
};

TEST_F(FaultTest, OffUntilSet) {
  EXPECT_FALSE(FaultsOn());
  ASSERT_TRUE(SetFaults("replay:fail=internal").ok());
  EXPECT_TRUE(FaultsOn());
  ASSERT_TRUE(SetFaults("").ok());
  EXPECT_FALSE(FaultsOn());
}

TEST_F(FaultTest, MalformedTextIsAnErrorThatNamesItAndChangesNothing) {
  ASSERT_TRUE(SetFaults("admit:fail=unavailable").ok());
  for (const char* text : {"replay",
                           "replay:",
                           ":hang",
                           "reply:hang",
                           "replay:hang=1",
                           "replay:delay",
                           "replay:delay=",
                           "replay:delay=-1",
                           "replay:delay=1s",
                           "replay:delay=3600001",
                           "replay:fail",
                           "replay:fail=ok",
                           "replay:hang*0",
                           "replay:hang*",
                           "replay:hang*-1",
                           "replay@:hang",
                           "load@x:hang",
                           "allocate@x:hang",
                           "accept@x:hang",
                           "replay:nan",
                           "deliver:fail=internal",
                           "replay:sleep",
                           "admit:hang;x",
                           " replay:hang"}) {
    const absl::Status status = SetFaults(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("SLUICE_TEST_FAULTS")) << text;
  }
  EXPECT_EQ(Meet(FaultPoint::kAdmit).code(), absl::StatusCode::kUnavailable);
}

TEST_F(FaultTest, FaultsStrikeWhereWhomAndAsOftenAsTheySay) {
  ASSERT_TRUE(SetFaults("replay:fail=internal*2;replay@x:fail=unavailable;replay:delay=0;"
                        "allocate:fail=resource_exhausted;deliver@y:nan*1")
                  .ok());
  EXPECT_TRUE(Meet(FaultPoint::kBeforeReplay).ok());
  EXPECT_EQ(Meet(FaultPoint::kAllocate).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Meet(FaultPoint::kReplay).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Meet(FaultPoint::kReplay, "x").code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Meet(FaultPoint::kReplay, "x").code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Meet(FaultPoint::kReplay).ok());
  EXPECT_FALSE(MeetNan(FaultPoint::kDeliver, "x"));
  EXPECT_TRUE(MeetNan(FaultPoint::kDeliver, "y"));
  EXPECT_FALSE(MeetNan(FaultPoint::kDeliver, "y"));
}

TEST_F(FaultTest, WhoHangsIsLetGoByOtherFaults) {
  ASSERT_TRUE(SetFaults("replay:hang*1").ok());
  std::thread hanging([] { EXPECT_TRUE(Meet(FaultPoint::kReplay).ok()); });
  // Its one use is gone once it hangs.
  while (!Meet(FaultPoint::kAdmit).ok()) {
  }
  ASSERT_TRUE(SetFaults("").ok());
  hanging.join();
}

}  // namespace
}  // namespace sluice
