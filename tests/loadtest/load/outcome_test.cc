#include "loadtest/load/outcome.h"

#include <gtest/gtest.h>

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

TEST(Judge, TellsRejectionsDeadlinesAndErrorsApart) {
  inference::ModelInferResponse response;
  Answer good;
  good.parsed = &response;
  const Answer expired = Error(grpc::StatusCode::DEADLINE_EXCEEDED, "");
  const struct {
    milliseconds deadline;
    int took_ms;
    Answer answer;
    Outcome outcome;
  } cases[] = {
      {milliseconds(0), 9999, good, Outcome::kOk},
      {milliseconds(50), 50, good, Outcome::kOk},
      {milliseconds(50), 51, good, Outcome::kDeadline},
      {milliseconds(50), 51, expired, Outcome::kDeadline},
      {milliseconds(0), 9999, expired, Outcome::kUnfinished},
      {milliseconds(0), 1, Error(grpc::StatusCode::RESOURCE_EXHAUSTED, ""), Outcome::kRejected},
      {milliseconds(0), 1, Error(grpc::StatusCode::UNAVAILABLE, ""), Outcome::kError},
      {milliseconds(0), 1, Error(grpc::StatusCode::INTERNAL, ""), Outcome::kError},
  };
  for (const auto& each : cases) {
    Judge judge(each.deadline, nullptr);
    EXPECT_EQ(judge.Decide(TookMs(each.took_ms), each.answer), each.outcome)
        << each.answer.code << " after " << each.took_ms << " ms";
  }
}

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
