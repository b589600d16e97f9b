#include "base/fault_injection.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class FaultTest : public ::testing::Test {
 protected:
  ~FaultTest() override { EXPECT_TRUE(SetFaults("").ok()); }

  static absl::Status Meet(FaultPoint point, const std::string& of = "") {
    return InjectFault(point, [&of](std::string_view id) { return id == of; });
  }
};

TEST_F(FaultTest, FaultsAreOffUntilTheyAreSet) {
  EXPECT_FALSE(FaultsOn());
  ASSERT_TRUE(SetFaults("replay:fail=internal").ok());
  EXPECT_TRUE(FaultsOn());
  ASSERT_TRUE(SetFaults("").ok());
  EXPECT_FALSE(FaultsOn());
}

TEST_F(FaultTest, AMalformedTextIsAnErrorAndChangesNothing) {
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
                           "replay:until",
                           "replay:until=",
                           "replay:until=*1",
                           "replay@:hang",
                           "load@x:hang",
                           "allocate@x:hang",
                           "accept@x:hang",
                           "replay:nan",
                           "deliver:fail=internal",
                           "deliver:illegal_access",
                           "replay:sleep",
                           "admit:hang;x",
                           " replay:hang"}) {
    const absl::Status status = SetFaults(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("SLUICE_TEST_FAULTS")) << text;
  }
  EXPECT_EQ(Meet(FaultPoint::kAdmit).code(), absl::StatusCode::kUnavailable);
}

TEST_F(FaultTest, AFaultStrikesAtItsPointForItsRequestUpToItsCount) {
  ASSERT_TRUE(
      SetFaults("replay:fail=internal*2;replay@x:fail=unavailable;replay:delay=0;"
                "allocate:fail=resource_exhausted;deliver@y:nan*1;before_replay@z:illegal_access*1")
          .ok());
  EXPECT_TRUE(Meet(FaultPoint::kBeforeReplay).ok());
  EXPECT_EQ(Meet(FaultPoint::kAllocate).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Meet(FaultPoint::kReplay).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Meet(FaultPoint::kReplay, "x").code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Meet(FaultPoint::kReplay, "x").code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Meet(FaultPoint::kReplay).ok());
  EXPECT_FALSE(InjectNan("x"));
  EXPECT_TRUE(InjectNan("y"));
  EXPECT_FALSE(InjectNan("y"));
  const auto concerns = [](std::string_view id) { return id == "z"; };
  EXPECT_TRUE(Meet(FaultPoint::kBeforeReplay, "z").ok());
  EXPECT_FALSE(InjectIllegalAccess([](std::string_view) { return false; }));
  EXPECT_TRUE(InjectIllegalAccess(concerns));
  EXPECT_FALSE(InjectIllegalAccess(concerns));
}

TEST_F(FaultTest, AHangingThreadContinuesWhenTheFaultsAreChanged) {
  ASSERT_TRUE(SetFaults("replay:hang*1").ok());
  std::thread hanging([] { EXPECT_TRUE(Meet(FaultPoint::kReplay).ok()); });
  // Once the thread hangs, the fault is used up.
  while (!Meet(FaultPoint::kAdmit).ok()) {
  }
  ASSERT_TRUE(SetFaults("").ok());
  hanging.join();
}

TEST_F(FaultTest, UntilMakesAFileAndContinuesOnceAnotherFileExists) {
  const TemporaryDirectory directory;
  const std::string file = directory.File("open");
  ASSERT_TRUE(SetFaults("replay@x:until=" + file + "*1").ok());
  std::atomic<bool> went_on = false;
  std::thread waiting([&went_on] {
    EXPECT_TRUE(Meet(FaultPoint::kReplay, "x").ok());
    went_on = true;
  });
  while (!std::filesystem::exists(file + ".met")) std::this_thread::yield();
  EXPECT_FALSE(went_on);
  std::ofstream(file).close();
  waiting.join();
  EXPECT_TRUE(went_on);
  EXPECT_TRUE(Meet(FaultPoint::kReplay, "x").ok()) << "it was used up";
}

}  // namespace
}  // namespace sluice
