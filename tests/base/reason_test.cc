#include "base/reason.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Reason, AnErrorHasTheCodeAndTheReasonOfItsRow) {
  for (const ReasonInfo& info : kReasons) {
    const absl::Status error = ReasonError(info.reason, "why");
    EXPECT_EQ(error.code(), info.code) << info.name;
    EXPECT_EQ(error.message(), "why");
    EXPECT_EQ(ReasonOf(error), info.reason) << info.name;
  }
}

// An error without an attached reason gets its reason from its code.
TEST(Reason, FollowsFromTheCodeOfAnErrorWithoutAReason) {
  const auto reason_of = [](absl::StatusCode code) { return ReasonOf(absl::Status(code, "why")); };
  EXPECT_EQ(reason_of(absl::StatusCode::kCancelled), Reason::kCancelled);
  EXPECT_EQ(reason_of(absl::StatusCode::kUnknown), Reason::kUnknown);
  EXPECT_EQ(reason_of(absl::StatusCode::kInvalidArgument), Reason::kInvalidArgument);
  EXPECT_EQ(reason_of(absl::StatusCode::kDeadlineExceeded), Reason::kDeadline);
  EXPECT_EQ(reason_of(absl::StatusCode::kNotFound), Reason::kNotFound);
  EXPECT_EQ(reason_of(absl::StatusCode::kPermissionDenied), Reason::kPermissionDenied);
  EXPECT_EQ(reason_of(absl::StatusCode::kResourceExhausted), Reason::kResourceExhausted);
  EXPECT_EQ(reason_of(absl::StatusCode::kFailedPrecondition), Reason::kFailedPrecondition);
  EXPECT_EQ(reason_of(absl::StatusCode::kOutOfRange), Reason::kOutOfRange);
  EXPECT_EQ(reason_of(absl::StatusCode::kUnimplemented), Reason::kUnimplemented);
  EXPECT_EQ(reason_of(absl::StatusCode::kInternal), Reason::kInternal);
  EXPECT_EQ(reason_of(absl::StatusCode::kUnavailable), Reason::kUnavailable);
  EXPECT_EQ(reason_of(absl::StatusCode::kDataLoss), Reason::kDataLoss);
  EXPECT_EQ(reason_of(absl::StatusCode::kAborted), Reason::kUnknown);
}

}  // namespace
}  // namespace sluice
