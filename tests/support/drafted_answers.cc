#include "tests/support/drafted_answers.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <iterator>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/step_batch.h"
#include "gtest/gtest.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_observer.h"
#include "tests/support/request_spec.h"

namespace sluice {
namespace {

constexpr size_t kTogether = 5;  // requests at a time
constexpr std::chrono::milliseconds kStep{500};

// The sources of drafts: n-grams, and draft models. All but one of the draft models are equal to
// the model, so each of their draws is the right token before it is edited.
enum class Source { kNgram, kModel, kRandom, kRight, kWrong };
constexpr std::array kSources = {Source::kNgram, Source::kModel, Source::kRandom, Source::kRight,
                                 Source::kWrong};
constexpr std::array kSourceNames = {"ngram", "model", "random", "mostly right", "always wrong"};
constexpr std::array kDraws = {Draws::kGreedy, Draws::kSampled, Draws::kPenalised, Draws::kMasked};
constexpr std::array kDrawsNames = {"greedy", "sampled", "penalised", "masked"};

class EditedModel final : public ExecutableModel {
 public:
  // `edit` is nullptr if the steps of the model take time.
  EditedModel(std::unique_ptr<ExecutableModel> model, EditingBackend::Edit edit, StepClock* clock,
              std::atomic<int64_t>* started_ahead)
      : model_(std::move(model)),
        edit_(std::move(edit)),
        clock_(clock),
        started_ahead_(started_ahead) {}

  int64_t weight_bytes() const override { return model_->weight_bytes(); }
  RowOrder row_order() const override { return model_->row_order(); }
  ComputedRows computed_rows() const override { return model_->computed_rows(); }
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
    if (!batches_.empty()) ++*started_ahead_;
    batches_.push_back(&batch);
    model_->Start(plan, slot, batch);
  }
  absl::Status Finish(Slot& slot) const override {
    const absl::Status status = model_->Finish(slot);
    if (edit_ == nullptr) {
      clock_->Advance(kStep);
    } else {
      for (const SampledRow& row : batches_.front()->sampled()) {
        row.result->token = edit_(row.result->token);
      }
    }
    batches_.pop_front();
    return status;
  }

 private:
  const std::unique_ptr<ExecutableModel> model_;
  const EditingBackend::Edit edit_;
  StepClock* const clock_;
  std::atomic<int64_t>* const started_ahead_;
  mutable std::deque<const StepBatch*> batches_;  // of the steps in progress
};

// Runs the requests, `kTogether` at a time.
std::vector<std::shared_ptr<RecordingSink>> Run(Engine* engine,
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

struct DraftedTokens {
  int64_t drafted = 0, accepted = 0;
};

// Compares the answers of one cell, and returns the number of its drafted tokens.
DraftedTokens CompareCell(Source source,
                          const std::vector<std::shared_ptr<RecordingSink>>& expected,
                          const std::vector<std::shared_ptr<RecordingSink>>& got) {
  DraftedTokens tokens;
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameAnswer(*expected[i], *got[i]);
    if (::testing::Test::HasFailure()) break;
    const RequestTrace trace = got[i]->trace();
    tokens.drafted += trace.drafted_tokens;
    tokens.accepted += trace.accepted_tokens;
    EXPECT_EQ(trace.draft_kind == DraftKind::kNgram, source == Source::kNgram);
  }
  return tokens;
}

void ExpectAcceptedAndRejected(const DraftedTokens& tokens, bool always_wrong = false) {
  EXPECT_GT(tokens.drafted, tokens.accepted) << "no token was rejected";
  if (always_wrong) {
    EXPECT_EQ(tokens.accepted, 0);
  } else {
    EXPECT_GT(tokens.accepted, 0);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExecutableModel>> EditingBackend::Load(
    std::shared_ptr<const Model> model) {
  auto loaded = backend_->Load(model);
  if (!loaded.ok()) return loaded;
  const auto edit = edits_.find(model->name);
  return std::make_unique<EditedModel>(
      *std::move(loaded), edit == edits_.end() ? nullptr : edit->second, &clock_, &started_ahead_);
}

Request RepeatingText(const std::shared_ptr<const Model>& model, Draws draws, int32_t answer,
                      std::mt19937_64& random) {
  Request request;
  RequestSpec& spec = Mutable(request.spec);
  spec.model = model;
  const auto vocabulary = static_cast<uint64_t>(model->config.vocab_size);
  const auto token = [&] { return static_cast<int32_t>(random() % vocabulary); };
  std::vector<int32_t> phrase(2 + random() % 8);
  std::ranges::generate(phrase, token);
  for (uint64_t times = 1 + random() % 3; times > 0; --times) {
    request.tokens.insert(request.tokens.end(), phrase.begin(), phrase.end());
    request.tokens.push_back(token());
  }
  spec.lengths = {static_cast<int32_t>(request.tokens.size())};
  spec.max_tokens = answer;
  spec.stop.ignore_eos = random() % 4 != 0;
  if (random() % 4 == 0) spec.stop.texts = {std::string(1, static_cast<char>(token()))};
  if (random() % 2 == 0) {
    request.outputs |= kOutputTopCandidates;
    spec.num_top = 2;
  }
  if (draws != Draws::kGreedy) spec.sampling.temperature = random() % 2 == 0 ? 0.2f : 0.7f;
  spec.sampling.seed = random();
  if (draws == Draws::kPenalised) {
    // Strong penalties make repetitions rare, so half of the texts are greedy with weak ones.
    const bool weak = random() % 2 == 0;
    const float strength = weak ? 0.02f : 1.0f;
    if (weak) spec.sampling.temperature = 0;
    spec.edits.repetition_penalty = 1 + 0.3f * strength;
    spec.edits.presence_penalty = 0.4f * strength;
    spec.edits.frequency_penalty = 0.3f * strength;
    spec.stop.min_tokens = static_cast<int32_t>(random() % 8);
  }
  if (draws == Draws::kMasked) {
    for (int32_t id = 0; id < static_cast<int32_t>(vocabulary); ++id) {
      if (random() % 3 != 0) spec.edits.allowed.push_back(id);
    }
    if (spec.edits.allowed.empty()) spec.edits.allowed = {5};
  }
  return request;
}

void ExpectDraftsChangeNoBit(std::unique_ptr<Backend> device, const DraftTrial& trial) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed), edits(seed + 1);
  const std::shared_ptr<Model> plain = trial.make("plain", /*similar=*/false);
  plain->speculation.kind = Speculation::kNone;
  const auto vocabulary = static_cast<int32_t>(plain->config.vocab_size);
  const auto some_token = [&](int32_t) {
    return static_cast<int32_t>(edits() % static_cast<uint64_t>(vocabulary));
  };
  const auto next_token = [&](int32_t token) { return (token + 1) % vocabulary; };
  const auto mostly_right = [&](int32_t token) {
    return edits() % 10 == 0 ? next_token(token) : token;
  };
  EditingBackend backend(std::move(device), {{kSourceNames[1], [](int32_t token) { return token; }},
                                             {kSourceNames[2], some_token},
                                             {kSourceNames[3], mostly_right},
                                             {kSourceNames[4], next_token}});
  EngineOptions options;
  options.batch.max_batch_tokens = trial.batch_tokens;
  options.batch.max_batch_sequences = 1 + kTogether;
  options.queue.max_wait_us = 3'600'000'000;  // steps take long on this clock
  options.ladder.max_buckets = 2;
  options.ladder.warm_up_us = 0;
  RecordingObserver observer;
  const auto engine = Engine::Create(options, &backend, backend.clock(), &observer);
  ModelChange change{.serve = {plain}, .withdraw = {}};
  for (size_t source = 0; source < kSources.size(); ++source) {
    const auto drafting =
        trial.make(std::string("drafted by ") + kSourceNames[source], /*similar=*/false);
    drafting->speculation = {.tokens = trial.tokens, .sequences = kTogether};
    if (kSources[source] != Source::kNgram) {
      drafting->speculation.kind = Speculation::kModel;
      drafting->draft = trial.make(kSourceNames[source], kSources[source] == Source::kModel);
    }
    change.serve.push_back(drafting);
  }
  const absl::Status served = engine->Exchange(change);
  ASSERT_TRUE(served.ok()) << served;
  DraftedTokens all;
  int64_t ahead = 0;  // steps of the models with drafts
  for (size_t draws = 0; draws < kDraws.size(); ++draws) {
    std::vector<Request> requests;
    for (int32_t i = 0; i < trial.texts; ++i) {
      requests.push_back(RepeatingText(plain, kDraws[draws], trial.answer, random));
    }
    const auto expected = Run(engine.get(), plain, requests);
    for (size_t source = 0; source < kSources.size(); ++source) {
      const bool chosen = source == 0 || (source + draws + seed) % kDraws.size() == 0;
      if (!trial.every_cell && !chosen) continue;
      SCOPED_TRACE(std::string(kDrawsNames[draws]) + ", " + kSourceNames[source]);
      const int64_t before = backend.started_ahead();
      const DraftedTokens cell = CompareCell(kSources[source], expected,
                                             Run(engine.get(), change.serve[1 + source], requests));
      if (::testing::Test::HasFailure()) return;
      ahead += backend.started_ahead() - before;
      std::printf("%s, %s, %s: %d texts, drafted %d, accepted %d, rejected %d\n",
                  trial.name.c_str(), kDrawsNames[draws], kSourceNames[source], trial.texts,
                  static_cast<int>(cell.drafted), static_cast<int>(cell.accepted),
                  static_cast<int>(cell.drafted - cell.accepted));
      all.drafted += cell.drafted;
      all.accepted += cell.accepted;
      const bool always_wrong = kSources[source] == Source::kWrong;
      if (trial.every_cell) ExpectAcceptedAndRejected(cell, always_wrong);
      EXPECT_TRUE(!always_wrong || cell.accepted == 0);
    }
  }
  ExpectAcceptedAndRejected(all);
  const std::vector<BatchTrace> batches = observer.batches();
  EXPECT_TRUE(std::ranges::any_of(batches, [](const BatchTrace& batch) {
    return batch.sequences > 1 && batch.sampled_rows > batch.sequences;
  })) << "no drafts next to other requests";
  std::printf("%s: %d steps with drafts allowed started ahead\n", trial.name.c_str(),
              static_cast<int>(ahead));
  EXPECT_EQ(ahead > 0, backend.info().steps_ahead > 0);
}

}  // namespace sluice
