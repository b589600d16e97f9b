// Drafted tokens change no bit of an answer: random texts are generated with and without drafts
// from several sources, next to other requests.
#include "engine/model/speculation.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/engine.h"
#include "engine/model/tokenizer/tokenizer.h"
#include "engine/rows/ngram_drafts.h"
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

enum class Source { kNgram, kRandom, kRight, kWrong };
constexpr std::array kSources = {Source::kNgram, Source::kRandom, Source::kRight, Source::kWrong};
constexpr std::array kSourceNames = {"ngram", "random", "mostly right", "always wrong"};
enum class Draws { kGreedy, kSampled, kPenalised, kMasked };
constexpr std::array kDraws = {Draws::kGreedy, Draws::kSampled, Draws::kPenalised, Draws::kMasked};
constexpr std::array kDrawsNames = {"greedy", "sampled", "penalised", "masked"};

// The answers without drafts, for sources that are right or wrong on purpose.
struct KnownAnswers {
  struct Known {
    std::vector<int32_t> prompt, answer;
  };
  std::vector<Known> all;

  // Returns the rest of the answer after `history`.
  std::span<const int32_t> After(std::span<const int32_t> history) const {
    for (const auto& [prompt, answer] : all) {
      const int64_t drawn = std::ssize(history) - std::ssize(prompt);
      if (drawn <= 0 || drawn > std::ssize(answer)) continue;
      if (!std::ranges::equal(history.first(prompt.size()), prompt)) continue;
      const std::span<const int32_t> known = answer;
      if (std::ranges::equal(history.last(static_cast<size_t>(drawn)),
                             known.first(static_cast<size_t>(drawn)))) {
        return known.subspan(static_cast<size_t>(drawn));
      }
    }
    return {};
  }
};

class RandomDrafts final : public DraftSource {
 public:
  int32_t Propose(std::span<const int32_t> history, std::span<int32_t> drafts) override {
    for (int32_t& draft : drafts) draft = static_cast<int32_t>(random_() % kVocabulary);
    return static_cast<int32_t>(random_() % (drafts.size() + 1));
  }

 private:
  std::mt19937_64 random_{7};
};

// Drafts tokens of the known answer, each of which is wrong with a probability.
class KnownDrafts final : public DraftSource {
 public:
  KnownDrafts(const KnownAnswers* answers, double wrong) : answers_(answers), wrong_(wrong) {}

  int32_t Propose(std::span<const int32_t> history, std::span<int32_t> drafts) override {
    const std::span<const int32_t> rest = answers_->After(history);
    const size_t count = std::min(rest.size(), drafts.size());
    for (size_t i = 0; i < count; ++i) {
      const bool wrong = std::bernoulli_distribution(wrong_)(random_);
      drafts[i] = wrong ? (rest[i] + 1) % kVocabulary : rest[i];
    }
    return static_cast<int32_t>(count);
  }

 private:
  const KnownAnswers* const answers_;
  const double wrong_;
  std::mt19937_64 random_{11};
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
std::shared_ptr<Model> MakeModel(const Kind& kind) {
  const auto model =
      std::const_pointer_cast<Model>(testing::RandomModel(ConfigOf(kind), 17, kind.dtype));
  model->tokenizer = MakeByteTokenizer(-1);
  return model;
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
  if (draws != Draws::kGreedy) spec.sampling.temperature = 0.7f;
  spec.sampling.seed = random();
  if (draws == Draws::kPenalised) {
    spec.edits.repetition_penalty = 1.3f;
    spec.edits.presence_penalty = 0.4f;
    spec.edits.frequency_penalty = 0.3f;
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
  static std::unique_ptr<Engine> Serve(Backend* backend, const std::shared_ptr<const Model>& model,
                                       Observer* observer) {
    auto engine = Engine::Create(QuickToServe(), backend, Clock::Real(), observer);
    const absl::Status served = engine->Serve(model);
    EXPECT_TRUE(served.ok()) << served;
    return engine;
  }

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

  std::unique_ptr<DraftSource> MakeSource(int64_t max_length) const {
    switch (source_) {
      case Source::kNgram:
        return std::make_unique<NgramDrafts>(max_length);
      case Source::kRandom:
        return std::make_unique<RandomDrafts>();
      case Source::kRight:
        return std::make_unique<KnownDrafts>(&known_, 0.1);
      case Source::kWrong:
        return std::make_unique<KnownDrafts>(&known_, 1);
    }
    return nullptr;
  }

  Source source_ = Source::kNgram;
  KnownAnswers known_;
};

TEST_P(SpeculationTest, ChangesNoBitOfAnAnswer) {
  const auto backend = MakeCpuBackend({.threads = 2, .poison = true});
  ASSERT_TRUE(backend.ok()) << backend.status();
  const std::shared_ptr<Model> plain = MakeModel(GetParam()), drafting = MakeModel(GetParam());
  drafting->speculation = {.kind = Speculation::kNgram, .sequences = kTogether, .always = true};
  drafting->make_drafts = [this](int64_t max_length) { return MakeSource(max_length); };
  RecordingObserver plain_observer, observer;
  const auto without = Serve(backend->get(), plain, &plain_observer);
  const auto with = Serve(backend->get(), drafting, &observer);
  constexpr uint64_t kSeed = 20261129;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (size_t draws = 0; draws < kDraws.size(); ++draws) {
    std::vector<Request> requests;
    for (int32_t i = 0; i < Texts(); ++i) {
      requests.push_back(RandomText(plain, kDraws[draws], random));
    }
    const auto expected = Run(without.get(), plain, requests);
    known_.all.clear();
    for (size_t i = 0; i < requests.size(); ++i) {
      known_.all.push_back({requests[i].tokens, expected[i]->row_tokens(0)});
    }
    for (size_t source = 0; source < kSources.size(); ++source) {
      SCOPED_TRACE(std::string(kDrawsNames[draws]) + ", " + kSourceNames[source]);
      source_ = kSources[source];
      const auto got = Run(with.get(), drafting, requests);
      int64_t drafted = 0, accepted = 0;
      for (size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(i);
        ExpectSameAnswer(*expected[i], *got[i]);
        if (HasFailure()) return;
        drafted += got[i]->trace().drafted_tokens;
        accepted += got[i]->trace().accepted_tokens;
      }
      std::printf("%s, %s, %s: %d texts, drafted %d, accepted %d, rejected %d\n", GetParam().name,
                  kDrawsNames[draws], kSourceNames[source], Texts(), static_cast<int>(drafted),
                  static_cast<int>(accepted), static_cast<int>(drafted - accepted));
      EXPECT_GT(drafted, accepted) << "no token was rejected";
      if (source_ == Source::kWrong) {
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

constexpr SpeculationOptions kNever = {.kind = Speculation::kNone};
constexpr SpeculationOptions kAlways = {.kind = Speculation::kNgram, .always = true};

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

INSTANTIATE_TEST_SUITE_P(
    Types, SpeculationTest,
    ::testing::Values(Kind{.name = "f32"}, Kind{.name = "bf16", .dtype = kernels::DType::kBF16},
                      Kind{.name = "int8", .quantization = Quantization::kInt8},
                      Kind{.name = "int4", .quantization = Quantization::kInt4}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sluice
