#include "loadtest/load/outcome.h"

#include <gtest/gtest.h>

#include "tests/support/table.h"

namespace sluice::load {
namespace {

using std::chrono::milliseconds;

CallRecord TookMs(int ms) {
  CallRecord record;
  record.scheduled = milliseconds(100);
  record.done = milliseconds(100 + ms);
  return record;
}

Answer Error(grpc::StatusCode code, const std::string& message) {
  Answer answer;
  answer.code = code;
  answer.message = message;
  return answer;
}

struct JudgeRow {
  const char* name;
  milliseconds deadline{0};  // 0 means none
  int took_ms;
  grpc::StatusCode code;
  Outcome outcome;
};
class JudgeTable : public TableTest<JudgeRow> {};

TEST_P(JudgeTable, DistinguishesOutcomes) {
  inference::ModelInferResponse response;
  Answer answer = Error(row().code, "");
  if (row().code == grpc::StatusCode::OK) answer.parsed = &response;
  Judge judge(row().deadline, nullptr);
  EXPECT_EQ(judge.Decide(TookMs(row().took_ms), answer), row().outcome);
}

const JudgeRow kJudgeRows[] = {
    {.name = "AnAnswerWithoutADeadlineIsGood",
     .took_ms = 9999,
     .code = grpc::StatusCode::OK,
     .outcome = Outcome::kOk},
    {.name = "AnAnswerAtTheDeadlineIsGood",
     .deadline = milliseconds(50),
     .took_ms = 50,
     .code = grpc::StatusCode::OK,
     .outcome = Outcome::kOk},
    {.name = "AnAnswerAfterTheDeadlineMissesIt",
     .deadline = milliseconds(50),
     .took_ms = 51,
     .code = grpc::StatusCode::OK,
     .outcome = Outcome::kDeadline},
    {.name = "AnExpiredCallMissesTheDeadline",
     .deadline = milliseconds(50),
     .took_ms = 51,
     .code = grpc::StatusCode::DEADLINE_EXCEEDED,
     .outcome = Outcome::kDeadline},
    {.name = "AnExpiredCallWithoutADeadlineIsUnfinished",
     .took_ms = 9999,
     .code = grpc::StatusCode::DEADLINE_EXCEEDED,
     .outcome = Outcome::kUnfinished},
    {.name = "AnExhaustedServerRejects",
     .took_ms = 1,
     .code = grpc::StatusCode::RESOURCE_EXHAUSTED,
     .outcome = Outcome::kRejected},
    {.name = "AnUnavailableServerFails",
     .took_ms = 1,
     .code = grpc::StatusCode::UNAVAILABLE,
     .outcome = Outcome::kError},
    {.name = "AnInternalErrorFails",
     .took_ms = 1,
     .code = grpc::StatusCode::INTERNAL,
     .outcome = Outcome::kError},
};
SLUICE_TABLE(JudgeTable, kJudgeRows);

TEST(Judge, KeepsTheFirstMessageOfEachStatus) {
  Judge judge(nanoseconds{0}, nullptr);
  judge.Decide(TookMs(1), Error(grpc::StatusCode::INTERNAL, "first"));
  judge.Decide(TookMs(1), Error(grpc::StatusCode::INTERNAL, "second"));
  judge.Decide(TookMs(1), Error(grpc::StatusCode::NOT_FOUND, "no model"));
  const Errors errors = judge.errors();
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors.at(grpc::StatusCode::INTERNAL).count, 2);
  EXPECT_EQ(errors.at(grpc::StatusCode::INTERNAL).first_message, "first");
}

TEST(Judge, ReadsAnswersInBothForms) {
  inference::ModelInferResponse response;
  response.add_raw_output_contents("abc");
  const grpc::Slice slice(response.SerializeAsString());
  const grpc::ByteBuffer bytes(&slice, 1);
  Answer unary;
  unary.bytes = &bytes;
  Answer streamed;
  streamed.parsed = &response;

  AnswerBook book;
  book.Prepare({{grpc::Slice(), 1, 1}});
  Judge judge(nanoseconds{0}, &book);
  EXPECT_EQ(judge.Decide(TookMs(1), unary), Outcome::kOk);
  EXPECT_EQ(judge.Decide(TookMs(1), streamed), Outcome::kOk);
  response.set_raw_output_contents(0, "abd");
  EXPECT_EQ(judge.Decide(TookMs(1), streamed), Outcome::kWrong);

  const grpc::Slice garbage("\xff\xff\xff");
  const grpc::ByteBuffer unreadable(&garbage, 1);
  unary.bytes = &unreadable;
  EXPECT_EQ(judge.Decide(TookMs(1), unary), Outcome::kWrong);
}

}  // namespace
}  // namespace sluice::load
