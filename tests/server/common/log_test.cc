#include "server/common/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpc/support/log.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::SizeIs;

class LogTest : public ::testing::Test {
 protected:
  std::vector<std::string> Lines() const { return ReadTestLines(path_); }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.File("log");
};

TEST(RenderTest, TextQuotesSpecialCharacters) {
  EXPECT_EQ(RenderText("request", {{"id", "a-1"}, {"n", 3}, {"empty", ""}, {"share", 0.5}}),
            "request id=a-1 n=3 empty=\"\" share=0.5");
  EXPECT_EQ(RenderText("m", {{"id", "x\nsluice error=1"}, {"q", "a\"b"}}),
            "m id=\"x\\nsluice error=1\" q=\"a\\\"b\"");
}

TEST(RenderTest, JsonIsValidForEveryByte) {
  std::string bytes;
  for (int c = 0; c < 256; ++c) bytes.push_back(static_cast<char>(c));
  const auto parsed =
      nlohmann::json::parse("{" + RenderJson(bytes, {{"id", bytes}, {"n", -7}}) + "}");
  EXPECT_EQ(parsed["n"], -7);
  const std::string ascii = bytes.substr(0, 128);
  EXPECT_EQ(parsed["id"].get<std::string>().substr(0, 128), ascii);
  EXPECT_EQ(parsed["message"].get<std::string>().substr(0, 128), ascii);
}

TEST(RenderTest, JsonEscapesLineEndsAndDirectionsOfUnicode) {
  EXPECT_EQ(RenderJson("m", {{"id", "a\u2028b\u202ec"}}),
            R"("message":"m","id":"a\u2028b\u202ec")");
}

TEST_F(LogTest, WritesTextLines) {
  (*Log::Create({}, path_))->Warn("low\nmemory", {{"bytes", 12}});
  const std::vector<std::string> lines = Lines();
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_TRUE(std::regex_match(
      lines[0],
      std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z warning low\\nmemory bytes=12)")))
      << lines[0];
}

TEST_F(LogTest, MessagesOfGrpcCannotFloodTheLog) {
  {
    const auto log = *Log::Create({}, path_);
    log->CaptureGrpc();
    gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);  // gRPC does this when a server starts
    for (int i = 0; i < 1000; ++i) gpr_log(__FILE__, __LINE__, GPR_LOG_SEVERITY_ERROR, "flood");
    EXPECT_EQ(log->dropped(), 0);
  }
  const size_t lines = Lines().size();
  EXPECT_GE(lines, 100u);
  EXPECT_LT(lines, 1000u) << "at 10 per second all of them would take 90 s";
}

TEST_F(LogTest, WritesJsonLines) {
  LogOptions options;
  options.format = LogOptions::Format::kJson;
  (*Log::Create(options, path_))->Info("a \"b\" %v %%", {{"id", "x\ny"}});
  const std::vector<std::string> lines = Lines();
  ASSERT_THAT(lines, SizeIs(1));
  const auto parsed = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(parsed["level"], "info");
  EXPECT_EQ(parsed["message"], "a \"b\" %v %%");
  EXPECT_EQ(parsed["id"], "x\ny");
  EXPECT_TRUE(parsed.contains("time"));
}

TEST_F(LogTest, TheLevelFiltersRecords) {
  LogOptions options;
  options.level = "error";
  {
    auto log = *Log::Create(options, path_);
    log->Info("info");
    log->Warn("warn");
    log->Error("error");
  }
  EXPECT_THAT(Lines(), SizeIs(1));
}

TEST_F(LogTest, EveryRecordIsWrittenOrCountedAsDropped) {
  constexpr int kRecords = 50'000;
  int64_t dropped = 0;
  {
    auto log = *Log::Create({}, path_, /*queue_records=*/64);
    for (int i = 0; i < kRecords; ++i) log->Info("record");
    dropped = log->dropped();
  }
  EXPECT_GT(dropped, 0) << "the writer kept up, so the test tested nothing";
  EXPECT_EQ(Lines().size() + dropped, kRecords);
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsAnError) {
  const absl::Status status = Log::Create({}, "/proc/no/such/file").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice
