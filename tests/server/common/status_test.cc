#include "server/common/status.h"
#include "tests/support/table.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(StatusTest, EveryCodeKeepsItsNumber) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    const grpc::Status mapped = ToGrpc(status);
    EXPECT_EQ(mapped.error_code(), code);
    EXPECT_EQ(mapped.error_message(), code == 0 ? "" : "why");
  }
}

TEST(StatusTest, AnInvalidCodeBecomesUnknown) {
  const absl::Status odd(static_cast<absl::StatusCode>(77), "odd");
  EXPECT_EQ(ToGrpc(odd).error_code(), grpc::StatusCode::UNKNOWN);
}

TEST(StatusTest, LongMessagesAreCut) {
  EXPECT_EQ(ToGrpc(absl::InternalError(std::string(100'000, 'x'))).error_message().size(), 4096u);
}

TEST(StatusTest, WithoutAnAttachedPushbackTheGivenOneApplies) {
  EXPECT_EQ(PushbackOf(absl::ResourceExhaustedError(""), absl::Seconds(3)), absl::Seconds(3));
  EXPECT_EQ(WithPushback(absl::OkStatus(), absl::Seconds(1)), absl::OkStatus());
}

struct PushbackRow {
  const char* name;
  absl::Duration attached;
  int returned_ms;
};
class AttachedPushbackTable : public TableTest<PushbackRow> {};

TEST_P(AttachedPushbackTable, TakesPrecedenceAndIsRoundedUp) {
  const absl::Status refused = WithPushback(absl::ResourceExhaustedError(""), row().attached);
  EXPECT_EQ(PushbackOf(refused, absl::Seconds(3)), absl::Milliseconds(row().returned_ms));
}

const PushbackRow kPushbackRows[] = {
    {.name = "WholeMillisecondsStay", .attached = absl::Milliseconds(70), .returned_ms = 70},
    {.name = "APartOfAMillisecondCountsAsAWhole",
     .attached = absl::Microseconds(70'001),
     .returned_ms = 71},
    {.name = "NoTimeIsOneMillisecond", .attached = absl::ZeroDuration(), .returned_ms = 1},
};
SLUICE_TABLE(AttachedPushbackTable, kPushbackRows);

TEST(StatusTest, PrintableEscapesAndTruncates) {
  EXPECT_EQ(Printable("top_k"), "\"top_k\"");
  EXPECT_EQ(Printable(std::string("a\n\0\"\x80", 5)), "\"a\\n\\x00\\\"\\x80\"");
  EXPECT_EQ(Printable(std::string(64, 'y')), "\"" + std::string(64, 'y') + "\"");
  EXPECT_EQ(Printable(std::string(65, 'y')), "\"" + std::string(64, 'y') + "...\"");
}

}  // namespace
}  // namespace sluice
