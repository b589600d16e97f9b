// Checks that the engine on the CPU backend generates the same tokens as Hugging Face; see
// tests/goldens/make_generate.py.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/cpu/cpu_backend.h"
#include "engine/engine.h"
#include "gtest/gtest.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_observer.h"
#include "tests/support/request_spec.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr char kGoldens[] = SLUICE_SOURCE_DIR "/tests/goldens/";

const json& Goldens() {
  static const json goldens = json::parse(ReadTestFile(std::string(kGoldens) + "generate.json"));
  return goldens;
}

// Loads the committed checkpoint with enough positions for the goldens.
std::shared_ptr<const Model> LoadLongModel(const std::string& name,
                                           const TemporaryDirectory& scratch) {
  const std::string directory = scratch.File(name);
  std::filesystem::copy(kGoldens + name, directory);
  json config = json::parse(ReadTestFile(directory + "/config.json"));
  config["max_position_embeddings"] = Goldens()["max_position_embeddings"];
  WriteTestFile(directory + "/config.json", config.dump());
  auto model = LoadModel(name, 1, directory);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

Request RequestOf(const json& golden, const std::shared_ptr<const Model>& model) {
  Request request;
  Mutable(request.spec).model = model;
  request.tokens = golden["prompt"].get<std::vector<int32_t>>();
  Mutable(request.spec).lengths = {static_cast<int32_t>(request.tokens.size())};
  request.outputs = kOutputTokens;
  Mutable(request.spec).max_tokens = static_cast<int32_t>(golden["tokens"].size());
  Mutable(request.spec).edits.repetition_penalty = golden["repetition_penalty"];
  return request;
}

class GenerateGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(GenerateGolden, GreedyTokensEqualHuggingFace) {
  const TemporaryDirectory scratch;
  const std::shared_ptr<const Model> model = LoadLongModel(GetParam(), scratch);
  ASSERT_NE(model, nullptr);
  const auto backend = MakeCpuBackend({.threads = 2, .profile = "f32", .poison = true});
  ASSERT_TRUE(backend.ok()) << backend.status();
  RecordingObserver observer;
  EngineOptions options;
  options.batch.prefill_tokens = 20;  // longer prompts are cut while sequences run
  const auto engine = Engine::Create(options, backend->get(), Clock::Real(), &observer);
  ASSERT_TRUE(engine->Serve(model).ok());

  struct Case {
    const json& golden;
    std::shared_ptr<RecordingSink> endless, ended;
  };
  std::vector<Case> cases;
  for (const json& golden : Goldens()["cases"]) {
    if (golden["model"] != GetParam()) continue;
    Request request = RequestOf(golden, model);
    const auto ended = SubmitTo(engine.get(), request);
    Mutable(request.spec).stop.ignore_eos = true;
    cases.push_back({golden, SubmitTo(engine.get(), request), ended});
  }
  ASSERT_FALSE(cases.empty());
  for (const Case& each : cases) {
    SCOPED_TRACE(each.golden["prompt"].dump());
    each.endless->AwaitDone();
    each.ended->AwaitDone();
    std::vector<int32_t> expected = each.golden["tokens"];
    EXPECT_EQ(each.endless->row_tokens(0), expected);
    const auto eos = std::find(expected.begin(), expected.end(), model->config.eos_token_ids[0]);
    const FinishReason reason = eos == expected.end() ? FinishReason::kLength : FinishReason::kStop;
    expected.erase(eos, expected.end());
    EXPECT_EQ(each.ended->row_tokens(0), expected);
    EXPECT_EQ(each.ended->reply().finish[0], reason);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GenerateGolden,
                         ::testing::Values("llama_mha", "llama_gqa", "llama_mqa", "llama_headdim",
                                           "llama_bias", "llama_rope3", "llama_bf16", "llama_f16",
                                           "llama_sharded", "llama_newconfig"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace sluice
