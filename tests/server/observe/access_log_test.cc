#include "server/observe/access_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/server/protocol/messages.h"
#include "tests/support/request_spec.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class AccessLogTest : public ::testing::Test {
 protected:
  AccessLogTest()
      : path_(absl::StrCat(::testing::TempDir(), "/sluice_access_log_test_", getpid(), ".log")) {
    Mutable(request_.spec).id = "req 7";
    Mutable(request_.spec).model = testing::TextModel();
    request_.tokens = {1, 2};
    Mutable(request_.spec).lengths = {2};
    const MonoTime start(std::chrono::hours(1));
    trace_.received = start;
    trace_.queued = start + std::chrono::microseconds(10);
    trace_.first_run = start + std::chrono::microseconds(110);
    trace_.done = start + std::chrono::microseconds(1000);
    trace_.compute = std::chrono::microseconds(700);
    trace_.prompt_tokens = 2;
    trace_.generated_tokens = 5;
    trace_.reused_tokens = 1;
    trace_.drafted_tokens = 8;
    trace_.accepted_tokens = 3;
    trace_.preemptions = 3;
    trace_.bucket_tokens = 64;
  }
  ~AccessLogTest() override { std::remove(path_.c_str()); }

  std::string Logged(double share, const absl::Status& status) {
    std::remove(path_.c_str());
    auto log = *Log::Create({}, path_);
    AccessLog(share, log.get()).OnRequestDone(request_, status, trace_);
    log.reset();
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  const std::string path_;
  Request request_;
  RequestTrace trace_;
};

TEST_F(AccessLogTest, LogsTheLifeOfARequest) {
  EXPECT_THAT(Logged(1, absl::OkStatus()),
              HasSubstr("request id=\"req 7\" model=text version=1 code=OK rows=1 prompt_tokens=2 "
                        "reused_tokens=1 generated_tokens=5 drafted_tokens=8 accepted_tokens=3 "
                        "bucket=64 steps=0 preemptions=3 "
                        "queue_us=100 compute_us=700 total_us=1000\n"));
}

TEST_F(AccessLogTest, NamesTheCallerIfItIsIdentified) {
  EXPECT_THAT(Logged(1, absl::OkStatus()), Not(HasSubstr("caller=")));
  request_.caller = "alice";
  EXPECT_THAT(Logged(1, absl::OkStatus()), HasSubstr("total_us=1000 caller=alice\n"));
}

TEST_F(AccessLogTest, ARequestThatNeverRanWaitedUntilItsEnd) {
  trace_.first_run = {};
  EXPECT_THAT(Logged(1, absl::CancelledError("gone")),
              ::testing::AllOf(HasSubstr("queue_us=990"), HasSubstr("code=CANCELLED"),
                               HasSubstr("error=gone")));
}

// A caller that repeats an id would otherwise be in the sample with all of its requests or none.
TEST_F(AccessLogTest, TheSampleDoesNotDependOnTheId) {
  std::remove(path_.c_str());
  auto log = *Log::Create({}, path_);
  AccessLog access(0.3, log.get());
  constexpr int kRequests = 4000;  // fewer than the log's queue has places
  for (int i = 0; i < kRequests; ++i) access.OnRequestDone(request_, absl::OkStatus(), trace_);
  log.reset();
  std::ifstream file(path_);
  const auto lines = std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  EXPECT_NEAR(lines, 0.3 * kRequests, 8 * std::sqrt(0.3 * 0.7 * kRequests));
}

TEST_F(AccessLogTest, OnlyInternalErrorsAreLoggedOutsideTheSample) {
  EXPECT_THAT(Logged(0, absl::OkStatus()), IsEmpty());
  EXPECT_THAT(Logged(0, absl::CancelledError("")), IsEmpty());
  EXPECT_THAT(Logged(0, absl::InternalError("nan")), Not(IsEmpty()));
}

TEST_F(AccessLogTest, LogsTheTraceIdIfThereIsOne) {
  EXPECT_THAT(Logged(1, absl::OkStatus()), Not(HasSubstr("trace_id")));
  request_.trace.trace_id[15] = 0xab;
  EXPECT_THAT(Logged(1, absl::OkStatus()), HasSubstr("trace_id=000000000000000000000000000000ab"));
}

}  // namespace
}  // namespace sluice
