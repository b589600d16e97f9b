// Drafted tokens change no bit of an answer: random texts are generated with and without drafts
// from several sources, next to other requests.
#include "engine/model/speculation.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "engine/backend.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/engine.h"
#include "engine/model/tokenizer/tokenizer.h"
#include "engine/step_batch.h"
#include "gtest/gtest.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_observer.h"

namespace sluice {
namespace {

constexpr int32_t kVocabulary = 24;
constexpr int32_t kAnswer = 32;  // tokens
constexpr size_t kTogether = 5;  // requests at a time

// The number of texts of each combination.
int32_t Texts() {
  const char* const text = std::getenv("SLUICE_SPECULATION_TEXTS");
  int32_t texts = 20;
  EXPECT_TRUE(text == nullptr || absl::SimpleAtoi(text, &texts)) << "SLUICE_SPECULATION_TEXTS";
  return texts;
}

EngineOptions QuickToServe() {
  EngineOptions options;
  options.batch.max_batch_tokens = 256;
  options.ladder.warm_up_us = 0;
  return options;
}

// The sources of drafts: n-grams, and draft models. All but one of the draft models have the
// weights of the model, so each of their draws is the right token before it is edited.
enum class Source { kNgram, kModel, kRandom, kRight, kWrong };
constexpr std::array kSources = {Source::kNgram, Source::kModel, Source::kRandom, Source::kRight,
                                 Source::kWrong};
constexpr std::array kSourceNames = {"ngram", "model", "random", "mostly right", "always wrong"};
enum class Draws { kGreedy, kSampled, kPenalised, kMasked };
constexpr std::array kDraws = {Draws::kGreedy, Draws::kSampled, Draws::kPenalised, Draws::kMasked};
constexpr std::array kDrawsNames = {"greedy", "sampled", "penalised", "masked"};

// A model on a device that edits each drawn token.
class EditedModel final : public ExecutableModel {
 public:
  using Edit = std::function<int32_t(int32_t token)>;
  EditedModel(std::unique_ptr<ExecutableModel> model, Edit edit)
      : model_(std::move(model)), edit_(std::move(edit)) {}

  int64_t weight_bytes() const override { return model_->weight_bytes(); }
  RowOrder row_order() const override { return model_->row_order(); }
  int64_t page_bytes() const override { return model_->page_bytes(); }
  int64_t activation_bytes(const Bucket& largest) const override {
    return model_->activation_bytes(largest);
  }
  absl::StatusOr<std::unique_ptr<Plan>> Prepare(const Bucket& bucket) const override {
    return model_->Prepare(bucket);
  }
  absl::StatusOr<std::unique_ptr<Slot>> CreateSlot(const Bucket& largest,
                                                   int32_t pages) const override {
    return model_->CreateSlot(largest, pages);
  }
  void Start(const Plan& plan, Slot& slot, const StepBatch& batch) const override {
    batch_ = &batch;
    model_->Start(plan, slot, batch);
  }
  absl::Status Finish(Slot& slot) const override {
    const absl::Status status = model_->Finish(slot);
    for (const SampledRow& row : batch_->sampled()) row.result->token = edit_(row.result->token);
    return status;
  }

 private:
  const std::unique_ptr<ExecutableModel> model_;
  const Edit edit_;
  mutable const StepBatch* batch_ = nullptr;  // of the latest step
};

// Edits the draws of the models with these names.
class EditingBackend final : public Backend {
 public:
  explicit EditingBackend(std::map<std::string, EditedModel::Edit> edits)
      : edits_(std::move(edits)) {}

  const BackendInfo& info() const override { return cpu_->info(); }
  int64_t FreeMemory() const override { return cpu_->FreeMemory(); }
  absl::StatusOr<std::unique_ptr<ExecutableModel>> Load(
      std::shared_ptr<const Model> model) override {
    auto loaded = cpu_->Load(model);
    const auto edit = edits_.find(model->name);
    if (!loaded.ok() || edit == edits_.end()) return loaded;
    return std::make_unique<EditedModel>(*std::move(loaded), edit->second);
  }

 private:
  const std::unique_ptr<Backend> cpu_ = *MakeCpuBackend({.threads = 1, .poison = true});
  const std::map<std::string, EditedModel::Edit> edits_;
};

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

// Returns the model that drafts the tokens of a source. The draft model in another precision often
// draws another token.
std::shared_ptr<Model> MakeDraft(const Kind& kind, size_t source) {
  Kind other = kind;
  if (kSources[source] == Source::kModel) {
    const bool int4 = kind.quantization == Quantization::kInt4;
    other.quantization = int4 ? Quantization::kInt8 : Quantization::kInt4;
  }
  return MakeModel(other, kSourceNames[source]);
}

// Prompts repeat themselves, so that n-grams are found.
Request RandomText(const std::shared_ptr<const Model>& model, Draws draws,
                   std::mt19937_64& random) {
  Request request;
  RequestSpec& spec = Mutable(request.spec);
  spec.model = model;
  const auto token = [&] { return static_cast<int32_t>(random() % kVocabulary); };
  std::vector<int32_t> phrase(2 + random() % 8);
  std::ranges::generate(phrase, token);
  for (uint64_t times = 1 + random() % 3; times > 0; --times) {
    request.tokens.insert(request.tokens.end(), phrase.begin(), phrase.end());
    request.tokens.push_back(token());
  }
  spec.lengths = {static_cast<int32_t>(request.tokens.size())};
  spec.max_tokens = kAnswer;
  spec.stop.ignore_eos = random() % 4 != 0;
  if (random() % 4 == 0) spec.stop.texts = {std::string(1, static_cast<char>(token()))};
  if (random() % 2 == 0) {
    request.outputs |= kOutputTopCandidates;
    spec.num_top = 2;
  }
  if (draws != Draws::kGreedy) spec.sampling.temperature = random() % 2 == 0 ? 0.2f : 0.7f;
  spec.sampling.seed = random();
  if (draws == Draws::kPenalised) {
    const float strength = random() % 2 == 0 ? 0.1f : 1.0f;
    spec.edits.repetition_penalty = 1 + 0.3f * strength;
    spec.edits.presence_penalty = 0.4f * strength;
    spec.edits.frequency_penalty = 0.3f * strength;
    spec.stop.min_tokens = static_cast<int32_t>(random() % 8);
  }
  if (draws == Draws::kMasked) {
    for (int32_t id = 0; id < kVocabulary; ++id) {
      if (random() % 3 != 0) spec.edits.allowed.push_back(id);
    }
    if (spec.edits.allowed.empty()) spec.edits.allowed = {5};
  }
  return request;
}

class SpeculationTest : public ::testing::TestWithParam<Kind> {
 protected:
  // Runs the requests, `kTogether` at a time.
  static std::vector<std::shared_ptr<RecordingSink>> Run(Engine* engine,
                                                         const std::shared_ptr<const Model>& model,
                                                         std::vector<Request> requests) {
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (Request& request : requests) {
      Mutable(request.spec).model = model;
      sinks.push_back(SubmitTo(engine, request));
      if (sinks.size() % kTogether != 0 && sinks.size() != requests.size()) continue;
      for (const auto& sink : sinks) sink->AwaitDone();
    }
    return sinks;
  }
};

TEST_P(SpeculationTest, ChangesNoBitOfAnAnswer) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed), edits(seed + 1);
  const auto some_token = [&](int32_t) { return static_cast<int32_t>(edits() % kVocabulary); };
  const auto next_token = [](int32_t token) { return (token + 1) % kVocabulary; };
  const auto mostly_right = [&](int32_t token) {
    return edits() % 10 == 0 ? next_token(token) : token;
  };
  EditingBackend backend({{kSourceNames[2], some_token},
                          {kSourceNames[3], mostly_right},
                          {kSourceNames[4], next_token}});
  RecordingObserver observer;
  const auto engine = Engine::Create(QuickToServe(), &backend, Clock::Real(), &observer);
  const std::shared_ptr<Model> plain = MakeModel(GetParam());
  plain->speculation.kind = Speculation::kNone;
  ModelChange change{.serve = {plain}, .withdraw = {}};
  for (size_t source = 0; source < kSources.size(); ++source) {
    const auto drafting = MakeModel(GetParam(), std::string("drafted by ") + kSourceNames[source]);
    drafting->speculation = {.sequences = kTogether, .always = true};
    if (kSources[source] != Source::kNgram) {
      drafting->speculation.kind = Speculation::kModel;
      drafting->draft = MakeDraft(GetParam(), source);
    }
    change.serve.push_back(drafting);
  }
  const absl::Status served = engine->Exchange(change);
  ASSERT_TRUE(served.ok()) << served;
  for (size_t draws = 0; draws < kDraws.size(); ++draws) {
    std::vector<Request> requests;
    for (int32_t i = 0; i < Texts(); ++i) {
      requests.push_back(RandomText(plain, kDraws[draws], random));
    }
    const auto expected = Run(engine.get(), plain, requests);
    for (size_t source = 0; source < kSources.size(); ++source) {
      SCOPED_TRACE(std::string(kDrawsNames[draws]) + ", " + kSourceNames[source]);
      const auto got = Run(engine.get(), change.serve[1 + source], requests);
      int64_t drafted = 0, accepted = 0;
      for (size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(i);
        ExpectSameAnswer(*expected[i], *got[i]);
        if (HasFailure()) return;
        drafted += got[i]->trace().drafted_tokens;
        accepted += got[i]->trace().accepted_tokens;
        const bool ngram = got[i]->trace().draft_kind == DraftKind::kNgram;
        EXPECT_EQ(ngram, kSources[source] == Source::kNgram);
      }
      std::printf("%s, %s, %s: %d texts, drafted %d, accepted %d, rejected %d\n", GetParam().name,
                  kDrawsNames[draws], kSourceNames[source], Texts(), static_cast<int>(drafted),
                  static_cast<int>(accepted), static_cast<int>(drafted - accepted));
      EXPECT_GT(drafted, accepted) << "no token was rejected";
      if (kSources[source] == Source::kWrong) {
        EXPECT_EQ(accepted, 0);
      } else {
        EXPECT_GT(accepted, 0);
      }
    }
  }
  const std::vector<BatchTrace> batches = observer.batches();
  EXPECT_TRUE(std::ranges::any_of(batches, [](const BatchTrace& batch) {
    return batch.sequences > 1 && batch.sampled_rows > batch.sequences;
  })) << "no drafts next to other requests";
}

// Runs a request on a model with these settings.
std::shared_ptr<RecordingSink> Answer(const SpeculationOptions& options,
                                      const std::function<void(RequestSpec*)>& change) {
  const auto backend = MakeCpuBackend({.threads = 1});
  const std::shared_ptr<Model> model = MakeModel({.name = "f32"});
  model->speculation = options;
  RecordingObserver observer;
  const auto engine = Engine::Create(QuickToServe(), backend->get(), Clock::Real(), &observer);
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
  for (const DraftStats& kind : engine->Stats().front().kv.drafts) {
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

const SpeculationOptions kNever = {.kind = Speculation::kNone};
const SpeculationOptions kAlways = {.kind = Speculation::kNgram, .always = true};

TEST(SpeculationSwitch, DraftsNothingUnlessModelAndRequestAllowIt) {
  EXPECT_GT(TraceOf(kAlways, [](RequestSpec*) {}).drafted_tokens, 0);
  EXPECT_EQ(TraceOf(kNever, [](RequestSpec*) {}).drafted_tokens, 0);
  EXPECT_EQ(TraceOf(kAlways, [](RequestSpec* spec) { spec->speculation = false; }).drafted_tokens,
            0);
}

TEST(SpeculationSource, AcceptsTheOnlyAllowedToken) {
  const RequestTrace trace = TraceOf(kAlways, [](RequestSpec* spec) { spec->edits.allowed = {7}; });
  EXPECT_EQ(trace.accepted_tokens, trace.drafted_tokens);
  EXPECT_LE(trace.steps, 1 + (kAnswer + 7) / 8);
}

TEST(SpeculationSource, AcceptsARightPrediction) {
  const auto sampled = [](RequestSpec* spec) {
    spec->sampling.temperature = 1.5f;
    spec->sampling.seed = 5;
  };
  const auto plain = Answer(kNever, sampled);
  EXPECT_EQ(plain->trace().steps, kAnswer);
  const auto got = Answer(kAlways, [&](RequestSpec* spec) {
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
  model->speculation = {.kind = Speculation::kModel, .draft = draft->name, .always = true};
  model->draft = draft;
  return model;
}

TEST(SpeculationByModel, ARequestThatArrivesWaitsForNoFurtherDraft) {
  std::function<void()> on_draft;
  EditingBackend backend({{"small", [&](int32_t token) {
                             on_draft();
                             return token;
                           }}});
  RecordingObserver observer;
  const auto engine = Engine::Create(QuickToServe(), &backend, Clock::Real(), &observer);
  const std::shared_ptr<Model> model = MakeDrafted(MakeModel({.name = "f32"}, "small"));
  ASSERT_EQ(engine->Serve(model), absl::OkStatus());
  std::mt19937_64 random(3);
  Request first = RandomText(model, Draws::kGreedy, random);
  Mutable(first.spec).stop = {};
  Mutable(first.spec).stop.ignore_eos = true;
  Request second = RandomText(model, Draws::kGreedy, random);
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
