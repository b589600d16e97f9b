// Runs the engine on an emulated GPU: a request gets the same bits whether or not the next step
// begins before its tokens are known to the host.
#include <random>
#include <set>

#include "base/fault_injection.h"
#include "base/reason.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/emulator/simt_device.h"
#include "engine/model/model.h"
#include "engine/model/tokenizer/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/drafted_answers.h"
#include "tests/support/golden_file.h"
#include "tests/support/one_step_at_a_time.h"
#include "tests/support/padded_layouts.h"
#include "tests/support/random_requests.h"
#include "tests/support/shared_prefix.h"

namespace sluice::testing {
namespace {

constexpr int kRequests = 8;
constexpr uint64_t kSeed = 20261123;

struct EngineAnswers {
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  int64_t inputs_ahead = 0;  // inputs that were sent while another step ran
};

EngineAnswers AnswersOf(const std::shared_ptr<const Model>& model, bool ahead,
                        const RequestMix& mix) {
  auto device = simt::MakeSimtDevice();
  simt::SimtDevice& observed = *device;
  std::unique_ptr<Backend> backend =
      MakeCudaBackend(std::move(device), {.dtype = "f32", .poison = true}).value();
  EXPECT_EQ(backend->info().steps_ahead, 1);
  if (!ahead) backend = std::make_unique<OneStepAtATime>(std::move(backend));
  EngineOptions options;
  options.batch.max_batch_tokens = 64;
  options.batch.max_batch_sequences = 6;
  options.queue.max_wait_us = 3'600'000'000;  // the emulator's steps may be slow
  RecordingObserver observer;
  const auto engine = Engine::Create(options, backend.get(), Clock::Real(), &observer);
  EXPECT_TRUE(engine->Serve(model).ok());
  EngineAnswers answers;
  const int64_t before = observed.counts().copies_on_device;
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < kRequests; ++i) {
    answers.sinks.push_back(SubmitTo(engine.get(), RandomRequest(model, random, mix)));
  }
  engine->Drain(MonoTime::max());
  EXPECT_EQ(observed.fault(), "");
  answers.inputs_ahead = observed.counts().copies_on_device - before;
  return answers;
}

TEST(EngineOnCuda, StepsAheadDoNotChangeBits) {
  SCOPED_TRACE(kSeed);
  const std::shared_ptr<const Model> model = RandomModel(TinyConfig(1), 3);
  const RequestMix mix = {.most_rows = 2, .most_length = 6, .most_tokens = 14, .stops = true};
  const EngineAnswers one = AnswersOf(model, false, mix), ahead = AnswersOf(model, true, mix);
  for (int i = 0; i < kRequests; ++i) {
    SCOPED_TRACE(i);
    ExpectSameAnswer(*one.sinks[i], *ahead.sinks[i]);
    if (HasFailure()) return;
  }
  EXPECT_EQ(one.inputs_ahead, 0);
  EXPECT_GT(ahead.inputs_ahead, 8);
}

// Returns a golden model with this name, room for an answer, and a tokenizer of bytes.
std::shared_ptr<Model> GoldenModel(const std::string& name, Quantization quantization) {
  ModelOptions options;
  if (quantization != Quantization::kNone) {
    options.quantization = QuantizationConfig{.projections = quantization};
  }
  const auto model =
      std::const_pointer_cast<Model>(LoadModel(name, 1, GoldenPath("llama_mqa"), options).value());
  model->config.max_positions = 64;  // rotary positions need no weights
  model->tokenizer = MakeByteTokenizer(-1);
  return model;
}

// A row with drafts waits for its results, and other steps start ahead.
TEST(EngineOnCuda, DraftsDoNotChangeBits) {
  ExpectDraftsChangeNoBit(
      MakeCudaBackend(simt::MakeSimtDevice(), {.dtype = "f32", .poison = true}).value(),
      {.name = "cuda f32",
       .make =
           [](const std::string& name, bool similar) {
             return GoldenModel(name, similar ? Quantization::kInt8 : Quantization::kNone);
           },
       .texts = 3,
       .tokens = 2,
       .batch_tokens = 16,
       .every_cell = false});
}

TEST(EngineOnCuda, PaddedLayoutsOfAttentionInBothDirectionsGiveTheBitsOfThePackedOne) {
  ModelConfig config = TinySluiceConfig(1);
  config.causal = false;
  config.max_positions = 12;
  const std::shared_ptr<const Model> model = RandomModel(config, 3);
  ASSERT_FALSE(model->config.causal);
  const std::unique_ptr<Backend> backend =
      MakeCudaBackend(simt::MakeSimtDevice(), {.dtype = "f32", .poison = true}).value();
  EngineOptions options;
  options.batch.max_batch_tokens = 48;
  options.batch.max_batch_sequences = 4;
  options.ladder.max_buckets = 2;
  ExpectPaddedGivesPackedBits(
      backend.get(), model, options,
      [&](std::mt19937_64& random) { return RandomEmbedding(model, random, {.most_rows = 2}); }, 6);
}

// The prefix ends within a page, and each item has a copy of this page.
TEST(EngineOnCuda, SharedPrefixIsComputedOnceWithTheSameBits) {
  for (const char* const dtype : {"f32", "bf16"}) {
    SCOPED_TRACE(dtype);
    const std::unique_ptr<Backend> backend =
        MakeCudaBackend(simt::MakeSimtDevice(), {.dtype = dtype, .poison = true}).value();
    EngineOptions options;
    options.batch.max_batch_tokens = 48;
    options.batch.max_batch_sequences = 8;
    options.ladder.max_buckets = 2;
    ExpectSharedPrefixIsComputedOnce(backend.get(), RandomModel(TinySluiceConfig(1), 3), options,
                                     {.prefix = 21, .items = 6, .longest_item = 5});
  }
}

// A head is captured for lists of 64. A longer list is launched op by op, which the lookup of its
// step shows. Diverse lists of any length are not.
TEST(EngineOnCuda, AnyNumberOfCandidatesNeedsNoCapture) {
  ModelConfig config = TinyConfig(1);
  config.vocab_size = 150;
  const std::shared_ptr<const Model> model = RandomModel(config, 3);
  auto device = simt::MakeSimtDevice();
  simt::SimtDevice& observed = *device;
  const std::unique_ptr<Backend> backend =
      MakeCudaBackend(std::move(device), {.dtype = "f32", .poison = true}).value();
  RecordingObserver observer;
  EngineOptions options;
  options.batch.max_batch_tokens = 16;
  options.ladder.strategy = StrategyKind::kFixed;
  const auto engine = Engine::Create(options, backend.get(), Clock::Real(), &observer);
  ASSERT_TRUE(engine->Serve(model).ok());
  const int64_t captures = observed.captures();
  const auto candidates = [&](int32_t count, float diversity) {
    Request request;
    Mutable(request.spec).model = model;
    Mutable(request.spec).lengths = {3};
    Mutable(request.spec).num_top = count;
    Mutable(request.spec).diversity = diversity;
    request.tokens = {5, 6, 7};
    request.outputs = kOutputTokens | kOutputTopCandidates;
    const auto sink = SubmitTo(engine.get(), request);
    sink->AwaitDone();
    EXPECT_TRUE(sink->status().ok()) << sink->status();
    return sink->row_top_ids(0);
  };
  const std::vector<int32_t> all = candidates(150, 0);
  // A few numbers suffice in other orders of the device's work.
  const int32_t stride = simt::SimtOrderOfEnvironment() == simt::SimtOrder::kLate ? 1 : 9;
  for (int32_t count = 1; count <= 100; count += stride) {
    const Lookup expected = count > 64 ? Lookup::kMissGuard : Lookup::kHit;
    ASSERT_EQ(candidates(count, 0), std::vector<int32_t>(all.begin(), all.begin() + count));
    EXPECT_EQ(observer.batches().back().lookup, expected) << count;
    const std::vector<int32_t> diverse = candidates(count, 0.5f);
    EXPECT_EQ(observer.batches().back().lookup, Lookup::kHit) << count;
    ASSERT_EQ(std::ssize(diverse), count);
    EXPECT_EQ(diverse.front(), all.front());
    const std::set<int32_t> distinct(diverse.begin(), diverse.end());
    EXPECT_EQ(std::ssize(distinct), count);
  }
  EXPECT_EQ(observed.captures(), captures);
  EXPECT_EQ(observed.fault(), "");
}

TEST(EngineOnCuda, AnIllegalAccessEndsRequestsAsUnavailable) {
  ASSERT_TRUE(SetFaults("before_replay@lost:illegal_access").ok());
  auto device = simt::MakeSimtDevice();
  simt::SimtDevice& observed = *device;
  const std::unique_ptr<Backend> backend =
      MakeCudaBackend(std::move(device), {.dtype = "f32"}).value();
  RecordingObserver observer;
  EngineOptions options;
  options.batch.max_batch_tokens = 64;
  const auto engine = Engine::Create(options, backend.get(), Clock::Real(), &observer);
  const std::shared_ptr<const Model> model = RandomModel(TinyConfig(1), 3);
  ASSERT_TRUE(engine->Serve(model).ok());
  std::mt19937_64 random(kSeed);
  Request request = RandomRequest(model, random);
  const auto first = SubmitTo(engine.get(), request);
  first->AwaitDone();
  EXPECT_TRUE(first->status().ok()) << first->status();
  EXPECT_EQ(observed.fault(), "");
  Mutable(request.spec).id = "lost";
  const auto lost = SubmitTo(engine.get(), request);
  lost->AwaitDone();
  EXPECT_TRUE(absl::IsUnavailable(lost->status())) << lost->status();
  EXPECT_EQ(ReasonOf(lost->status()), Reason::kDeviceLost);
  EXPECT_NE(observed.fault(), "");
  EXPECT_TRUE(SetFaults("").ok());
}

}  // namespace
}  // namespace sluice::testing
