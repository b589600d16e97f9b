#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "base/utf8.h"
#include "client/exit_code.h"
#include "tests/client/command_fixture.h"
#include "tests/support/table.h"
#include "tests/support/tensor_bytes.h"

namespace sluice::client {
namespace {

using inference::ModelInferRequest;
using inference::ModelStreamInferResponse;
using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

void AddTensor(const std::string& name, const char* datatype, int64_t columns, std::string raw,
               inference::ModelInferResponse* response) {
  auto* output = response->add_outputs();
  output->set_name(name);
  output->set_datatype(datatype);
  output->add_shape(1);
  output->add_shape(columns);
  response->add_raw_output_contents(std::move(raw));
}

void AddBytes(const std::string& name, const std::string& value,
              inference::ModelInferResponse* response) {
  AddTensor(name, "BYTES", 1, BytesElement(value), response);
}

void SetFinal(bool final, inference::ModelInferResponse* response) {
  (*response->mutable_parameters())["triton_final_response"].set_bool_param(final);
}

ModelStreamInferResponse Piece(const std::vector<int32_t>& ids, const std::string& finish) {
  ModelStreamInferResponse message;
  auto* response = message.mutable_infer_response();
  response->set_model_name("demo");
  SetFinal(!finish.empty(), response);
  AddTensor("output_ids", "INT32", static_cast<int64_t>(ids.size()), Bytes(ids), response);
  AddTensor("sequence_length", "INT32", 1, Bytes<int32_t>({static_cast<int32_t>(ids.size())}),
            response);
  AddBytes("finish_reason", finish, response);
  return message;
}

ModelStreamInferResponse TextPiece(const std::string& text, const std::string& finish = "") {
  ModelStreamInferResponse message = Piece(std::vector<int32_t>(text.size(), 65), finish);
  AddBytes("text_output", text, message.mutable_infer_response());
  return message;
}

ModelStreamInferResponse Error(const std::string& message, const char* code) {
  ModelStreamInferResponse error;
  error.set_error_message(message);
  auto* response = error.mutable_infer_response();
  if (code != nullptr) (*response->mutable_parameters())["error_code"].set_string_param(code);
  SetFinal(true, response);
  return error;
}

// A service that answers every request with the same script.
class ScriptedService : public inference::GRPCInferenceService::Service {
 public:
  std::vector<ModelStreamInferResponse> script;
  bool until_cancelled = false;  // whether to continue until the client cancels
  grpc::Status status;

  grpc::Status RepositoryIndex(grpc::ServerContext*, const inference::RepositoryIndexRequest*,
                               inference::RepositoryIndexResponse* response) override {
    response->add_models()->set_name("demo");
    return grpc::Status::OK;
  }

  grpc::Status ModelStreamInfer(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<ModelStreamInferResponse, ModelInferRequest>* stream) override {
    ModelInferRequest request;
    int requests = 0;
    while (stream->Read(&request)) ++requests;
    for (const ModelStreamInferResponse& response : script) stream->Write(response);
    while (until_cancelled && !context->IsCancelled()) std::this_thread::yield();
    absl::MutexLock lock(&mu_);
    requests_ += requests;
    last_request_ = request;
    return status;
  }

  ModelInferRequest last_request() {
    absl::MutexLock lock(&mu_);
    return last_request_;
  }
  int requests() {
    absl::MutexLock lock(&mu_);
    return requests_;
  }

 private:
  absl::Mutex mu_;
  int requests_ = 0;
  ModelInferRequest last_request_;
};

class GenerateTest : public CommandFixture {
 protected:
  void SetUp() override { Serve({&service_}); }

  // Presses Ctrl-C as soon as the output is `text`.
  void InterruptAt(const std::string& text) {
    console_.set_interrupt = [this](std::function<void()> call) { interrupt_ = std::move(call); };
    on_flush_ = [this, text](const std::string& out) {
      if (out == text && interrupt_) interrupt_();
    };
  }

  ScriptedService service_;
  std::function<void()> interrupt_;
};

TEST_F(GenerateTest, ShowsPiecesAsTheyArrive) {
  service_.script = {TextPiece("And "), TextPiece(""), TextPiece("God", "length")};
  std::vector<std::string> flushed;
  on_flush_ = [&](const std::string& out) { flushed.push_back(out); };
  EXPECT_EQ(RunWith({"generate", "--text", "x"}), kExitOk);
  EXPECT_EQ(out_, "And God\n");
  EXPECT_EQ(error_, "");
  EXPECT_THAT(flushed, testing::ElementsAre("And ", "And ", "And God", "And God\n"));
  EXPECT_EQ(service_.requests(), 1);
  EXPECT_EQ(service_.last_request().model_name(), "demo");
  EXPECT_EQ(service_.last_request().parameters().at("max_tokens").int64_param(), 64);
}

TEST_F(GenerateTest, TheSummaryIsShownOnATerminalOrOnRequest) {
  service_.script = {TextPiece("And "), TextPiece("God", "length")};
  (*service_.script[1].mutable_infer_response()->mutable_parameters())["seed"].set_int64_param(9);
  EXPECT_EQ(RunWith({"generate", "--text", "x", "--verbose"}), kExitOk);
  EXPECT_EQ(out_, "And God\n");
  EXPECT_THAT(error_, testing::MatchesRegex(
                          "7 tokens in .* s, .*/s, the first after .* s, finish length, seed 9\n"));
  console_.progress = true;
  EXPECT_EQ(RunWith({"generate", "--text", "x"}), kExitOk);
  EXPECT_THAT(error_, StartsWith("7 tokens in "));
}

TEST_F(GenerateTest, ShowsIdsWithoutATokenizer) {
  service_.script = {Piece({5, 6}, ""), Piece({}, ""), Piece({7}, "stop")};
  EXPECT_EQ(RunWith({"generate", "--ids", "1,2"}), kExitOk);
  EXPECT_EQ(out_, "5 6 7\n");
}

TEST_F(GenerateTest, PrintsAJsonLineForEachResponse) {
  service_.script = {TextPiece("a\n"), TextPiece("\xff", "stop")};
  EXPECT_EQ(RunWith({"generate", "--text", "x", "--json", "--outputs", "text_output"}), kExitOk);
  const std::vector<std::string> lines = absl::StrSplit(out_, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(json::parse(lines[0])["outputs"]["text_output"], "a\n");
  EXPECT_EQ(json::parse(lines[0])["parameters"]["triton_final_response"], false);
  EXPECT_EQ(json::parse(lines[1])["outputs"]["text_output"], "\xef\xbf\xbd");
  EXPECT_EQ(service_.last_request().outputs(0).name(), "text_output");
}

TEST_F(GenerateTest, ThePromptMayBeOnStandardInput) {
  service_.script = {TextPiece("b", "length")};
  EXPECT_EQ(RunWith({"generate", "--text", "-"}, "two\nlines\n"), kExitOk);
  EXPECT_EQ(service_.last_request().raw_input_contents(0),
            std::string("\x0a\0\0\0two\nlines\n", 14));
  EXPECT_EQ(RunWith({"generate", "--text", "-"}, std::string((16 << 20) + 1, 'x')), kExitUsage);
  EXPECT_EQ(error_, "sluice: standard input: longer than 16777216 bytes\n");
  EXPECT_EQ(service_.requests(), 1);
}

TEST_F(GenerateTest, ThePromptNeedsNoFlag) {
  service_.script = {TextPiece("b", "length")};
  EXPECT_EQ(RunWith({"generate", "Once upon", "--max-tokens", "3"}), kExitOk);
  EXPECT_EQ(service_.last_request().raw_input_contents(0), std::string("\x09\0\0\0Once upon", 13));
  EXPECT_EQ(service_.last_request().parameters().at("max_tokens").int64_param(), 3);
  EXPECT_EQ(RunWith({"generate", "-"}, "piped"), kExitOk);
  EXPECT_EQ(service_.last_request().raw_input_contents(0), std::string("\x05\0\0\0piped", 9));
}

TEST_F(GenerateTest, BrokenUtf8IsNeverShown) {
  // A character in two pieces, an incomplete character, and bytes that start no character.
  service_.script = {TextPiece("h\xc3"), TextPiece("\xa9 \xff\xe2\x82"), TextPiece("", "length")};
  std::vector<std::string> flushed;
  on_flush_ = [&](const std::string& out) { flushed.push_back(out); };
  EXPECT_EQ(RunWith({"generate", "--text", "x"}), kExitOk);
  EXPECT_EQ(out_, "h\xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd\n");
  for (const std::string& out : flushed) EXPECT_TRUE(IsUtf8(out)) << out;
}

TEST_F(GenerateTest, ControlCharactersAreReplacedOnATerminal) {
  service_.script = {TextPiece("a\x1b[2J\n\tb", "length")};
  EXPECT_EQ(RunWith({"generate", "--text", "x"}), kExitOk);
  EXPECT_EQ(out_, "a\x1b[2J\n\tb\n");
  console_.terminal = true;
  EXPECT_EQ(RunWith({"generate", "--text", "x"}), kExitOk);
  EXPECT_EQ(out_, "a\xef\xbf\xbd[2J\n\tb\n");
}

TEST_F(GenerateTest, AnErrorInMidStreamKeepsTheTextBeforeIt) {
  service_.script = {TextPiece("And "), Error("the model failed", "INTERNAL")};
  EXPECT_EQ(RunWith({"generate", "--text", "x", "--verbose"}), kExitFailed);
  EXPECT_EQ(out_, "And \n");
  EXPECT_THAT(error_, StartsWith("4 tokens in "));
  EXPECT_THAT(error_, EndsWith("\nsluice: INTERNAL: the model failed\n"));
}

struct StreamErrorRow {
  const char* name;
  const char* code;
  const char* shown;
  int exit_code;
};
class StreamErrorTable : public TableTest<StreamErrorRow, GenerateTest> {};

TEST_P(StreamErrorTable, HasTheCodeFromTheServer) {
  service_.script = {Error("m", row().code)};
  EXPECT_EQ(RunWith({"generate", "--text", "x"}), row().exit_code);
  EXPECT_EQ(out_, "");
  EXPECT_THAT(error_, StartsWith(absl::StrCat("sluice: ", row().shown)));
}

const StreamErrorRow kStreamErrorRows[] = {
    {.name = "InvalidArgumentFails",
     .code = "INVALID_ARGUMENT",
     .shown = "INVALID_ARGUMENT: m\n",
     .exit_code = kExitFailed},
    {.name = "ResourceExhaustedFailsWithAHint",
     .code = "RESOURCE_EXHAUSTED",
     .shown = "RESOURCE_EXHAUSTED: m\nhint: ",
     .exit_code = kExitFailed},
    {.name = "UnavailableHasItsExitCode",
     .code = "UNAVAILABLE",
     .shown = "UNAVAILABLE: m\nhint: ",
     .exit_code = kExitUnavailable},
    {.name = "OkIsNotAnErrorCode", .code = "OK", .shown = "UNKNOWN: m\n", .exit_code = kExitFailed},
    {.name = "AnUnlistedCodeIsUnknown",
     .code = "NO_SUCH_CODE",
     .shown = "UNKNOWN: m\n",
     .exit_code = kExitFailed},
    {.name = "AMissingCodeIsUnknown",
     .code = nullptr,
     .shown = "UNKNOWN: m\n",
     .exit_code = kExitFailed},
};
SLUICE_TABLE(StreamErrorTable, kStreamErrorRows);

TEST_F(GenerateTest, AnErrorInTheStreamHasTheHintOfItsReason) {
  service_.script = {Error("m", "RESOURCE_EXHAUSTED")};
  (*service_.script[0].mutable_infer_response()->mutable_parameters())["error_reason"]
      .set_string_param("rate_limited");
  EXPECT_EQ(RunWith({"generate", "--text", "x"}), kExitFailed);
  EXPECT_THAT(error_, StartsWith("sluice: RESOURCE_EXHAUSTED: m\nhint: rate_limited: "));
}

TEST_F(GenerateTest, AStreamThatBreaksIsAnError) {
  service_.script = {TextPiece("And ")};
  EXPECT_EQ(RunWith({"generate", "--text", "x"}), kExitFailed);
  EXPECT_EQ(out_, "And \n");
  EXPECT_THAT(error_, HasSubstr("ended the stream before the final response"));
  service_.status = {grpc::StatusCode::UNAVAILABLE, "draining"};
  EXPECT_EQ(RunWith({"generate", "--text", "x"}), kExitUnavailable);
  EXPECT_THAT(error_, HasSubstr("UNAVAILABLE: draining"));
}

TEST_F(GenerateTest, AResponseThatContradictsItselfEndsTheStream) {
  service_.script = {TextPiece("And "), TextPiece("God")};
  service_.script[1].mutable_infer_response()->mutable_raw_output_contents()->RemoveLast();
  service_.until_cancelled = true;
  EXPECT_EQ(RunWith({"generate", "--text", "x"}), kExitFailed);
  EXPECT_EQ(out_, "And \n");
  EXPECT_THAT(error_, HasSubstr("4 outputs with 3 contents"));
}

TEST_F(GenerateTest, AnInterruptCancelsAndKeepsTheTextBeforeIt) {
  service_.script = {TextPiece("And "), TextPiece("God")};
  service_.until_cancelled = true;
  InterruptAt("And God");
  EXPECT_EQ(RunWith({"generate", "--text", "x", "--verbose"}), kExitInterrupted);
  EXPECT_EQ(out_, "And God\n");
  EXPECT_THAT(error_, testing::MatchesRegex("7 tokens in .*, interrupted\n"));
  EXPECT_FALSE(interrupt_) << "the next one must end the process";
}

TEST_F(GenerateTest, AnInterruptAfterTheLastPieceChangesNothing) {
  service_.script = {TextPiece("And", "length")};
  InterruptAt("And\n");
  EXPECT_EQ(RunWith({"generate", "--text", "x", "--verbose"}), kExitOk);
  EXPECT_THAT(error_, Not(HasSubstr("interrupted")));
}

TEST_F(GenerateTest, TheDeadlineCoversTheWholeCall) {
  service_.script = {TextPiece("And ")};
  service_.until_cancelled = true;
  EXPECT_EQ(RunWith({"generate", "--text", "x", "--deadline", "50ms"}), kExitFailed);
  EXPECT_THAT(error_, HasSubstr("DEADLINE_EXCEEDED"));
  EXPECT_THAT(error_, HasSubstr("hint: "));
}

TEST_F(GenerateTest, AMissingServerIsReported) {
  server_->Shutdown();
  EXPECT_EQ(RunWith({"generate", "--text", "x", "--model", "demo"}), kExitUnavailable);
  EXPECT_THAT(error_, HasSubstr("hint: no server answers at "));
}

}  // namespace
}  // namespace sluice::client
