// Drafted tokens change no bit of an answer: random texts are generated with and without drafts
// from several sources, next to other requests.
#include "engine/model/speculation.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/engine.h"
#include "engine/model/tokenizer/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/drafted_answers.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_observer.h"

namespace sluice {
namespace {

constexpr int32_t kVocabulary = 24;
constexpr int32_t kAnswer = 32;  // tokens

// The number of texts of each combination.
int32_t Texts() {
  const char* const text = std::getenv("SLUICE_SPECULATION_TEXTS");
  int32_t texts = 20;
  EXPECT_TRUE(text == nullptr || absl::SimpleAtoi(text, &texts)) << "SLUICE_SPECULATION_TEXTS";
  return texts;
}

std::unique_ptr<Backend> MakeCpu() { return *MakeCpuBackend({.threads = 1, .poison = true}); }

EngineOptions QuickToServe() {
  EngineOptions options;
  options.batch.max_batch_tokens = 256;
  options.ladder.warm_up_us = 0;
  return options;
}

struct Kind {
  const char* name;
  kernels::DType dtype = kernels::DType::kF32;
  Quantization quantization = Quantization::kNone;
};

ModelConfig ConfigOf(const Kind& kind) {
  ModelConfig config = testing::TinySluiceConfig(2);
  config.vocab_size = kVocabulary;
  config.max_positions = 96;
  config.quantization = {.projections = kind.quantization};
  config.eos_token_ids = {3};
  return config;
}

// Returns a model with a tokenizer of bytes, for stop texts.
std::shared_ptr<Model> MakeModel(const Kind& kind, const std::string& name = "plain") {
  const auto model =
      std::const_pointer_cast<Model>(testing::RandomModel(ConfigOf(kind), 17, kind.dtype));
  model->name = name;
  model->tokenizer = MakeByteTokenizer(-1);
  return model;
}

// Returns a model in another precision.
std::shared_ptr<Model> MakeSimilar(Kind kind, const std::string& name) {
  const bool int4 = kind.quantization == Quantization::kInt4;
  kind.quantization = int4 ? Quantization::kInt8 : Quantization::kInt4;
  return MakeModel(kind, name);
}

class SpeculationTest : public ::testing::TestWithParam<Kind> {};

TEST_P(SpeculationTest, ChangesNoBitOfAnAnswer) {
  ExpectDraftsChangeNoBit(MakeCpu(), {.name = GetParam().name,
                                      .make =
                                          [](const std::string& name, bool similar) {
                                            return similar ? MakeSimilar(GetParam(), name)
                                                           : MakeModel(GetParam(), name);
                                          },
                                      .texts = Texts()});
}

// Runs a request on a model with these settings.
std::shared_ptr<RecordingSink> Answer(const SpeculationOptions& options,
                                      const std::function<void(RequestSpec*)>& change) {
  EditingBackend backend(MakeCpu(), {});
  const std::shared_ptr<Model> model = MakeModel({.name = "f32"});
  model->speculation = options;
  RecordingObserver observer;
  const auto engine = Engine::Create(QuickToServe(), &backend, backend.clock(), &observer);
  EXPECT_TRUE(engine->Serve(model).ok());
  Request request;
  RequestSpec& spec = Mutable(request.spec);
  spec.model = model;
  request.tokens = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2};
  spec.lengths = {10};
  spec.max_tokens = kAnswer;
  spec.stop.ignore_eos = true;
  change(&spec);
  const auto sink = SubmitTo(engine.get(), request);
  sink->AwaitDone();
  EXPECT_TRUE(sink->status().ok()) << sink->status();
  EXPECT_EQ(sink->row_tokens(0).size(), static_cast<size_t>(kAnswer));
  const RequestTrace trace = sink->trace();
  int64_t drafted = 0, accepted = 0;
  const std::vector<ModelStats> stats = engine->Stats();
  for (const DraftStats& kind : stats.front().kv.drafts) {
    drafted += kind.drafted;
    accepted += kind.accepted;
  }
  EXPECT_EQ(trace.drafted_tokens, drafted);
  EXPECT_EQ(trace.accepted_tokens, accepted);
  return sink;
}

RequestTrace TraceOf(const SpeculationOptions& options,
                     const std::function<void(RequestSpec*)>& change) {
  return Answer(options, change)->trace();
}

const SpeculationOptions kNone = {.kind = Speculation::kNone};
const SpeculationOptions kNgrams = {.kind = Speculation::kNgram};

TEST(SpeculationSwitch, DraftsNothingUnlessModelAndRequestAllowIt) {
  EXPECT_GT(TraceOf(kNgrams, [](RequestSpec*) {}).drafted_tokens, 0);
  EXPECT_EQ(TraceOf(kNone, [](RequestSpec*) {}).drafted_tokens, 0);
  EXPECT_EQ(TraceOf(kNgrams, [](RequestSpec* spec) { spec->speculation = false; }).drafted_tokens,
            0);
}

TEST(SpeculationSource, AcceptsTheOnlyAllowedToken) {
  const RequestTrace trace = TraceOf(kNgrams, [](RequestSpec* spec) { spec->edits.allowed = {7}; });
  EXPECT_EQ(trace.accepted_tokens, trace.drafted_tokens);
  EXPECT_LE(trace.steps, 1 + (kAnswer + 7) / 8);
}

TEST(SpeculationSource, AcceptsARightPrediction) {
  const auto sampled = [](RequestSpec* spec) {
    spec->sampling.temperature = 1.5f;
    spec->sampling.seed = 5;
  };
  const auto plain = Answer(kNone, sampled);
  EXPECT_EQ(plain->trace().steps, kAnswer);
  const auto got = Answer(kNgrams, [&](RequestSpec* spec) {
    sampled(spec);
    spec->predicted = plain->row_tokens(0);
  });
  EXPECT_EQ(got->row_tokens(0), plain->row_tokens(0));
  EXPECT_EQ(got->trace().accepted_tokens, got->trace().drafted_tokens);
  EXPECT_LE(got->trace().steps, 2 + kAnswer / 9);
}

// Returns a model whose tokens another model drafts.
std::shared_ptr<Model> MakeDrafted(const std::shared_ptr<const Model>& draft) {
  const std::shared_ptr<Model> model = MakeModel({.name = "f32"}, "large");
  model->speculation = {.kind = Speculation::kModel, .draft = draft->name};
  model->draft = draft;
  return model;
}

TEST(SpeculationByModel, ARequestThatArrivesWaitsForNoFurtherDraft) {
  std::function<void()> on_draft;
  EditingBackend backend(MakeCpu(), {{"small", [&](int32_t token) {
                                        on_draft();
                                        return token;
                                      }}});
  RecordingObserver observer;
  const auto engine = Engine::Create(QuickToServe(), &backend, backend.clock(), &observer);
  const std::shared_ptr<Model> model = MakeDrafted(MakeModel({.name = "f32"}, "small"));
  ASSERT_EQ(engine->Serve(model), absl::OkStatus());
  std::mt19937_64 random(3);
  Request first = RepeatingText(model, Draws::kGreedy, kAnswer, random);
  Mutable(first.spec).stop = {};
  Mutable(first.spec).stop.ignore_eos = true;
  Request second = RepeatingText(model, Draws::kGreedy, kAnswer, random);
  Mutable(second.spec).stop = {};
  Mutable(second.spec).max_tokens = 4;
  int drafts = 0, late = 0;
  std::shared_ptr<RecordingSink> arrived;
  on_draft = [&] {
    if (++drafts == 3) arrived = SubmitTo(engine.get(), second);
    if (drafts > 3 && arrived->tokens().empty()) ++late;
  };
  const auto sink = SubmitTo(engine.get(), first);
  sink->AwaitDone();
  ASSERT_NE(arrived, nullptr);
  arrived->AwaitDone();
  EXPECT_EQ(late, 0);
  EXPECT_GT(drafts, 3) << "no drafts after the other request";
}

TEST(SpeculationByModel, CountsTheMemoryOfTheDraftModelOnce) {
  const auto backend = MakeCpuBackend({.threads = 1});
  RecordingObserver observer;
  EngineOptions options = QuickToServe();
  options.kv.memory_bytes = int64_t{1} << 20;
  const auto engine = Engine::Create(options, backend->get(), Clock::Real(), &observer);
  const std::shared_ptr<Model> small = MakeModel({.name = "f32"}, "small");
  ASSERT_EQ(engine->Exchange({.serve = {small, MakeDrafted(small)}, .withdraw = {}}),
            absl::OkStatus());
  const auto stats_of = [](const Engine& engine_of, const std::string& name) {
    const std::vector<ModelStats> all = engine_of.Stats();
    return *std::ranges::find(all, name, [](const ModelStats& each) { return each.model->name; });
  };
  const ModelStats draft = stats_of(*engine, "small"), large = stats_of(*engine, "large");
  EXPECT_EQ(large.draft_weight_bytes, draft.weight_bytes);
  EXPECT_EQ(large.weight_bytes, draft.weight_bytes);  // both models have the same sizes
  const int64_t page = draft.slot_memory.kv / draft.kv.pages;
  const int64_t pages =
      (small->config.max_positions + draft.kv.page_tokens - 1) / draft.kv.page_tokens;
  EXPECT_GE(large.slot_memory.kv, draft.slot_memory.kv + pages * page);
  EXPECT_GT(large.slot_memory.activation_room, draft.slot_memory.activation_room);
  const auto other = Engine::Create(options, backend->get(), Clock::Real(), &observer);
  ASSERT_EQ(other->Serve(MakeDrafted(small)), absl::OkStatus());
  EXPECT_EQ(stats_of(*other, "large").weight_bytes, 2 * draft.weight_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Types, SpeculationTest,
    ::testing::Values(Kind{.name = "f32"}, Kind{.name = "bf16", .dtype = kernels::DType::kBF16},
                      Kind{.name = "int8", .quantization = Quantization::kInt8},
                      Kind{.name = "int4", .quantization = Quantization::kInt4}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sluice
