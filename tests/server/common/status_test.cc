#include "server/common/status.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(StatusTest, EveryCodeKeepsItsNumberAndName) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    const grpc::Status mapped = ToGrpc(status);
    EXPECT_EQ(mapped.error_code(), code);
    EXPECT_EQ(mapped.error_message(), code == 0 ? "" : "why");
    EXPECT_EQ(std::string(CodeName(status.code())),
              code == 1 ? "CANCELLED" : absl::StatusCodeToString(status.code()));
    EXPECT_EQ(ReasonOf(status).empty(), code == 0);
  }
}

TEST(StatusTest, AnInvalidCodeBecomesUnknown) {
  const absl::Status odd(static_cast<absl::StatusCode>(77), "odd");
  EXPECT_EQ(ToGrpc(odd).error_code(), grpc::StatusCode::UNKNOWN);
}

TEST(StatusTest, LongMessagesAreCut) {
  EXPECT_EQ(ToGrpc(absl::InternalError(std::string(100'000, 'x'))).error_message().size(), 4096u);
}

TEST(StatusTest, TheAttachedReasonTakesPrecedence) {
  EXPECT_EQ(ReasonOf(absl::ResourceExhaustedError("")), "queue_full");
  EXPECT_EQ(ReasonOf(WithReason(absl::InvalidArgumentError(""), "input")), "input");
  EXPECT_EQ(ReasonOf(WithReason(absl::OkStatus(), "input")), "");
}

TEST(StatusTest, TheAttachedPushbackTakesPrecedenceAndIsRoundedUp) {
  const absl::Status refused = absl::ResourceExhaustedError("");
  EXPECT_EQ(PushbackOf(refused, absl::Seconds(3)), absl::Seconds(3));
  for (const auto& [given, told] : {std::pair(absl::Milliseconds(70), 70),
                                    {absl::Microseconds(70'001), 71},
                                    {absl::ZeroDuration(), 1}}) {
    EXPECT_EQ(PushbackOf(WithPushback(refused, given), absl::Seconds(3)), absl::Milliseconds(told));
  }
  EXPECT_EQ(WithPushback(absl::OkStatus(), absl::Seconds(1)), absl::OkStatus());
}

TEST(StatusTest, PrintableEscapesAndTruncates) {
  EXPECT_EQ(Printable("top_k"), "\"top_k\"");
  EXPECT_EQ(Printable(std::string("a\n\0\"\x80", 5)), "\"a\\n\\x00\\\"\\x80\"");
  EXPECT_EQ(Printable(std::string(65, 'y')), "\"" + std::string(64, 'y') + "...\"");
}

}  // namespace
}  // namespace sluice
