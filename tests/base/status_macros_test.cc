#include "base/status_macros.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace sluice {
namespace {

// Records whether it was made from a status that was moved.
struct Returned {
  Returned(const absl::Status& from) : status(from), moved(false) {}       // NOLINT
  Returned(absl::Status&& from) : status(std::move(from)), moved(true) {}  // NOLINT
  absl::Status status;
  bool moved;
};

absl::Status Fail() { return absl::NotFoundError("no such file"); }

Returned ReturnIfError(absl::Status status, int* evaluations) {
  SLUICE_RETURN_IF_ERROR((++*evaluations, std::move(status)));
  return absl::OkStatus();
}

TEST(ReturnIfError, ReturnsAnErrorWithoutACopyAndContinuesOtherwise) {
  int evaluations = 0;
  const Returned failed = ReturnIfError(Fail(), &evaluations);
  EXPECT_EQ(failed.status, Fail());
  EXPECT_TRUE(failed.moved);
  EXPECT_EQ(evaluations, 1);
  EXPECT_EQ(ReturnIfError(absl::OkStatus(), &evaluations).status, absl::OkStatus());
  EXPECT_EQ(evaluations, 2);
}

absl::StatusOr<int> ReturnIfErrorInABranch(bool fail) {
  if (fail)
    SLUICE_RETURN_IF_ERROR(Fail());
  else
    return 7;
  return 8;
}

TEST(ReturnIfError, IsOneStatementInAFunctionThatReturnsAValueOtherwise) {
  EXPECT_EQ(ReturnIfErrorInABranch(true).status(), Fail());
  EXPECT_EQ(*ReturnIfErrorInABranch(false), 7);
}

absl::Status ReturnIfErrorTwice(const absl::Status& first, const absl::Status& second) {
  SLUICE_RETURN_IF_ERROR(first);
  SLUICE_RETURN_IF_ERROR(second);
  return absl::OkStatus();
}

TEST(ReturnIfError, ReturnsTheFirstOfSeveralErrors) {
  EXPECT_EQ(ReturnIfErrorTwice(absl::OkStatus(), Fail()), Fail());
  EXPECT_EQ(ReturnIfErrorTwice(Fail(), absl::InternalError("")), Fail());
  EXPECT_EQ(ReturnIfErrorTwice(absl::OkStatus(), absl::OkStatus()), absl::OkStatus());
}

absl::StatusOr<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return absl::InvalidArgumentError("below 0");
  return std::make_unique<int>(value);
}

template <typename From, typename To>
absl::StatusOr<To> Convert(From value) {
  return static_cast<To>(value);
}

absl::StatusOr<std::vector<int64_t>> AssignSeveral(int a, int b) {
  std::vector<int64_t> values(2);
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<int> first, Make(a));
  SLUICE_ASSIGN_OR_RETURN(values[1], Convert<int, int64_t>(b));
  values[0] = *first;
  return values;
}

TEST(AssignOrReturn, MovesValuesToDeclarationsAndVariables) {
  EXPECT_EQ(*AssignSeveral(1, 2), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(AssignSeveral(-1, 2).status(), absl::InvalidArgumentError("below 0"));
}

Returned AssignInto(absl::StatusOr<int> from, int* to) {
  SLUICE_ASSIGN_OR_RETURN(*to, std::move(from));
  return absl::OkStatus();
}

TEST(AssignOrReturn, ReturnsAnErrorWithoutACopyAndAssignsNothing) {
  int to = 3;
  const Returned failed = AssignInto(Fail(), &to);
  EXPECT_EQ(failed.status, Fail());
  EXPECT_TRUE(failed.moved);
  EXPECT_EQ(to, 3);
  EXPECT_EQ(AssignInto(4, &to).status, absl::OkStatus());
  EXPECT_EQ(to, 4);
}

}  // namespace
}  // namespace sluice
