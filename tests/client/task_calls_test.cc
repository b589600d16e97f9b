#include "client/task_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/exit_code.h"
#include "proto/inference.grpc.pb.h"
#include "tests/client/command_fixture.h"
#include "tests/support/table.h"

namespace sluice::client {
namespace {

constexpr int kPart = 128;  // the texts of a request

// A service that answers the first requests with one value per text, and the others with an error.
class FakeModel : public inference::GRPCInferenceService::Service {
 public:
  inference::ModelMetadataResponse metadata;
  std::string output = "embedding";
  size_t answers = 1000;
  std::string error;

  grpc::Status RepositoryIndex(grpc::ServerContext*, const inference::RepositoryIndexRequest*,
                               inference::RepositoryIndexResponse* response) override {
    auto* model = response->add_models();
    model->set_name("m");
    model->set_version("1");
    model->set_state("READY");
    return grpc::Status::OK;
  }

  grpc::Status ModelMetadata(grpc::ServerContext*, const inference::ModelMetadataRequest*,
                             inference::ModelMetadataResponse* response) override {
    *response = metadata;
    return grpc::Status::OK;
  }

  grpc::Status ModelInfer(grpc::ServerContext*, const inference::ModelInferRequest* request,
                          inference::ModelInferResponse* response) override {
    absl::MutexLock lock(&mu_);
    requests_.push_back(*request);
    if (requests_.size() > answers) return {grpc::StatusCode::INVALID_ARGUMENT, error};
    const int64_t rows = request->inputs(request->inputs_size() - 1).shape(0);
    auto* values = response->add_outputs();
    values->set_name(output);
    values->set_datatype("FP32");
    values->add_shape(rows);
    values->add_shape(1);
    response->add_raw_output_contents(std::string(rows * sizeof(float), '\0'));
    return grpc::Status::OK;
  }

  std::vector<inference::ModelInferRequest> requests() {
    absl::MutexLock lock(&mu_);
    return requests_;
  }

 private:
  absl::Mutex mu_;
  std::vector<inference::ModelInferRequest> requests_;
};

class TaskCallsTest : public CommandFixture {
 protected:
  void SetUp() override { Serve({&model_}); }

  // Runs a command for this many texts from standard input.
  int RunOnTexts(std::vector<std::string> words, int texts) {
    std::string lines;
    for (int i = 0; i < texts; ++i) absl::StrAppend(&lines, "text ", i, "\n");
    return RunWith(std::move(words), lines);
  }

  FakeModel model_;
};

struct PromptsRow {
  const char* name;
  const char* prompts = "";
  // The parameter prompt_name of each request; "none" if it is absent.
  const char* query = "";
  const char* document = "";
};
class PromptsTable : public TableTest<PromptsRow, TaskCallsTest> {};

TEST_P(PromptsTable, SetThePromptsOfRerank) {
  (*model_.metadata.mutable_properties())["prompts"] = row().prompts;
  EXPECT_EQ(RunWith({"rerank", "q", "a", "b"}), kExitOk) << error_;
  std::vector<std::string> names;
  for (const auto& request : model_.requests()) {
    const auto found = request.parameters().find("prompt_name");
    names.push_back(found == request.parameters().end() ? "none" : found->second.string_param());
  }
  EXPECT_THAT(names, testing::ElementsAre(row().query, row().document));
}

const PromptsRow kPromptsRows[] = {
    {.name = "OfBothSidesAreUsed",
     .prompts = R"(["query", "document"])",
     .query = "query",
     .document = "document"},
    {.name = "OfOneSideAreOnlyUsedForIt",
     .prompts = R"(["query", "other"])",
     .query = "query",
     .document = ""},
    {.name = "OfNoSideLeaveTheDefaultPrompt",
     .prompts = R"(["other"])",
     .query = "none",
     .document = "none"},
    {.name = "ThatAreEmptyAreNotNamed", .prompts = "[]", .query = "none", .document = "none"},
};
SLUICE_TABLE(PromptsTable, kPromptsRows);

TEST_F(TaskCallsTest, ClassifyAppliesTheActivationThatMakesProbabilities) {
  model_.output = "scores";
  (*model_.metadata.mutable_properties())["probabilities"] = "softmax";
  EXPECT_EQ(RunWith({"classify", "a"}), kExitOk) << error_;
  EXPECT_EQ(RunWith({"classify", "--activation", "none", "a"}), kExitOk) << error_;
  std::vector<std::string> activations;
  for (const auto& request : model_.requests()) {
    activations.push_back(request.parameters().at("activation").string_param());
  }
  EXPECT_THAT(activations, testing::ElementsAre("softmax", "none"));
}

struct NamedTextRow {
  const char* name;
  std::vector<std::string> command;
  const char* output = "";  // of the model
  size_t answers = 1;       // before the error
  const char* error = "";   // of the server
  const char* shown = "";
};
class NamedTextTable : public TableTest<NamedTextRow, TaskCallsTest> {};

TEST_P(NamedTextTable, AnErrorNamesTheTextAmongAllTexts) {
  model_.output = row().output;
  model_.answers = row().answers;
  model_.error = row().error;
  auto* scores = model_.metadata.add_outputs();
  scores->set_name(row().output == std::string("maxsim") ? "vectors" : row().output);
  scores->add_shape(-1);
  scores->add_shape(1);
  model_.metadata.add_inputs()->set_name("text_pair_input");
  EXPECT_EQ(RunOnTexts(row().command, 2 * kPart), kExitFailed);
  EXPECT_EQ(error_, absl::StrCat("sluice: INVALID_ARGUMENT: ", row().shown, "\n"));
}

const NamedTextRow kNamedTextRows[] = {
    {.name = "OfTheFirstPart",
     .command = {"embed", "-"},
     .output = "embedding",
     .answers = 0,
     .error = "input text_input [3] has 9 tokens; expected 1 to 8",
     .shown = "input text_input [3] has 9 tokens; expected 1 to 8"},
    {.name = "OfTheSecondPart",
     .command = {"embed", "-"},
     .output = "embedding",
     .error = "input text_input [3] has 9 tokens; expected 1 to 8",
     .shown = "input text_input [131] has 9 tokens; expected 1 to 8"},
    {.name = "OfPairsWithTheSameSecondText",
     .command = {"classify", "-", "--pair", "p"},
     .output = "scores",
     .error = "input text_input [3] is not valid UTF-8",
     .shown = "input text_input [131] is not valid UTF-8"},
    {.name = "OfDocumentsThatAreTooLongWithTheQuery",
     .command = {"rerank", "q", "-"},
     .output = "scores",
     .error = "input text_input [3] has 9 tokens with its pair; expected 1 to 8",
     .shown = "input text_input [131] has 9 tokens with its pair; expected 1 to 8"},
    {.name = "OfDocuments",
     .command = {"rerank", "q", "-"},
     .output = "scores",
     .error = "input text_pair_input [3] is not valid UTF-8",
     .shown = "input text_pair_input [131] is not valid UTF-8"},
    {.name = "OfDocumentsAfterTheQuery",
     .command = {"rerank", "q", "-"},
     .output = "maxsim",
     .error = "input text_input [4] has 9 tokens; expected 1 to 8",
     .shown = "input text_pair_input [131] has 9 tokens; expected 1 to 8"},
    {.name = "UnlessItIsTheQuery",
     .command = {"rerank", "q", "-"},
     .output = "maxsim",
     .error = "input text_input [0] has 9 tokens; expected 1 to 8",
     .shown = "input text_input [0] has 9 tokens; expected 1 to 8"},
    {.name = "UnlessItNamesNoRow",
     .command = {"embed", "-"},
     .output = "embedding",
     .error = "input text_input [x",
     .shown = "input text_input [x"},
};
SLUICE_TABLE(NamedTextTable, kNamedTextRows);

}  // namespace
}  // namespace sluice::client
