// Runs the engine on an emulated GPU: a request gets the same bits whether or not the next step
// begins before its tokens are known to the host.
#include <random>

#include "base/fault_injection.h"
#include "base/reason.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/emulator/simt_device.h"
#include "gtest/gtest.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/one_step_at_a_time.h"
#include "tests/support/random_requests.h"

namespace sluice::testing {
namespace {

constexpr int kRequests = 8;
constexpr uint64_t kSeed = 20261123;

struct Answers {
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  int64_t inputs_ahead = 0;  // inputs that were sent while another step ran
};

Answers AnswersOf(const std::shared_ptr<const Model>& model, bool ahead, const RequestMix& mix) {
  auto device = simt::MakeSimtDevice();
  simt::SimtDevice& observed = *device;
  std::unique_ptr<Backend> backend =
      MakeCudaBackend(std::move(device), {.dtype = "f32", .poison = true}).value();
  EXPECT_EQ(backend->info().steps_ahead, 1);
  if (!ahead) backend = std::make_unique<OneStepAtATime>(std::move(backend));
  EngineOptions options;
  options.batch.max_batch_tokens = 64;
  options.batch.max_batch_sequences = 6;
  RecordingObserver observer;
  const auto engine = Engine::Create(options, backend.get(), Clock::Real(), &observer);
  EXPECT_TRUE(engine->Serve(model).ok());
  Answers answers;
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

TEST(EngineOnCuda, StepsAheadChangeNoBit) {
  SCOPED_TRACE(kSeed);
  const std::shared_ptr<const Model> model = RandomModel(TinyConfig(1), 3);
  const RequestMix mix = {.most_rows = 2, .most_length = 6, .most_tokens = 14, .stops = true};
  const Answers one = AnswersOf(model, false, mix), ahead = AnswersOf(model, true, mix);
  for (int i = 0; i < kRequests; ++i) {
    SCOPED_TRACE(i);
    ExpectSameAnswer(*one.sinks[i], *ahead.sinks[i]);
    if (HasFailure()) return;
  }
  EXPECT_EQ(one.inputs_ahead, 0);
  EXPECT_GT(ahead.inputs_ahead, 8);
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
  EXPECT_EQ(AttachedReason(lost->status()), "device_lost");
  EXPECT_NE(observed.fault(), "");
  EXPECT_TRUE(SetFaults("").ok());
}

}  // namespace
}  // namespace sluice::testing
