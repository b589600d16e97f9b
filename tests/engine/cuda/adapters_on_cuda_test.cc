// Adapters on an emulated GPU: one captured graph serves every mix, the vendor's library computes
// the base, bf16 is close to f32, and an adapter's memory is kept until the steps that read it have
// ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/cpu/cpu_backend.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/emulator/simt_device.h"
#include "engine/engine.h"
#include "engine/model/adapter.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_observer.h"
#include "tests/support/temporary_directory.h"

namespace sluice::testing {
namespace {

constexpr int kAdapters = 5;
constexpr Bucket kBucket{48, 12};

std::shared_ptr<const Model> SmallModel() {
  ModelConfig config = TinySluiceConfig(1);
  config.qkv_bias = true;
  return RandomModelWithAdapters(config, 29, kernels::DType::kF32, kAdapters);
}

// A runner with all adapters of its model.
struct Adapted {
  Adapted(const std::shared_ptr<const Model>& model, std::unique_ptr<Backend> backend)
      : runner(model, std::move(backend), kBucket) {
    for (const AdapterSource& source : model->adapters) {
      const auto adapter = *source.read();
      const int64_t most = *runner.executable().AdapterBytes(*adapter);
      adapters.push_back(runner.executable().LoadAdapter(*adapter).value());
      EXPECT_LE(adapters.back()->bytes(), most);
    }
  }

  // Returns prompts of random tokens for these adapters; -1 is the base.
  std::vector<Prompt> Prompts(const std::vector<int>& of, uint64_t seed) const {
    std::mt19937_64 random(seed);
    std::vector<Prompt> prompts;
    for (const int adapter : of) {
      prompts.push_back({.tokens = RandomTokens(random, static_cast<int64_t>(1 + random() % 4), 20),
                         .adapter = adapter < 0 ? nullptr : adapters[adapter].get()});
    }
    return prompts;
  }

  Runner runner;
  std::vector<std::unique_ptr<const LoadedAdapter>> adapters;
};

std::unique_ptr<Backend> Under(const std::string& profile) {
  return MakeBackendUnderTest({.threads = 1, .profile = profile, .poison = true});
}

// Steps of several mixes overlap in one slot.
TEST(AdaptersOnCuda, OneGraphServesEveryMix) {
  const auto model = SmallModel();
  auto device = simt::MakeSimtDevice();
  simt::SimtDevice& observed = *device;
  Adapted all(model, MakeCudaBackend(std::move(device), {.dtype = "f32", .poison = true}).value());
  const std::vector<std::vector<int>> mixes = {
      {-1, -1}, {0, 1, 2, 3, 4, -1, 0, 3}, {2}, {-1}, {4, 4, 0}, {3, 2, -1, 1}};
  std::vector<std::vector<Prompt>> batches;
  for (const std::vector<int>& mix : mixes) batches.push_back(all.Prompts(mix, mix.size()));
  all.runner.RunOverlapping(batches, kBucket);  // memory for sums of states grows with the steps
  const simt::SimtCounts before = observed.counts();
  const auto answers = all.runner.RunOverlapping(batches, kBucket);
  const simt::SimtCounts spent = observed.counts() - before;
  EXPECT_EQ(spent.captures, 1);
  EXPECT_EQ(spent.allocations, 0) << "a step allocates nothing";
  EXPECT_EQ(observed.fault(), "");
  for (size_t i = 0; i < batches.size(); ++i) {
    for (size_t row = 0; row < batches[i].size(); ++row) {
      const Prompt& prompt = batches[i][row];
      const Bucket own{static_cast<int32_t>(prompt.tokens.size()), 1};
      EXPECT_TRUE(SameBits(answers[i][row], all.runner.Run(std::vector<Prompt>{prompt}, own)[0]))
          << "step " << i << ", row " << row;
    }
  }
}

class AdaptersAndALibrary : public ::testing::TestWithParam<const char*> {};

// The library computes the joined layers, whose rows may be more than the bucket has tokens.
TEST_P(AdaptersAndALibrary, ARowHasTheBitsOfItsAdapterInAnyMix) {
  const std::string own = GetParam(), library = own + "-library";
  const auto model = SmallModel();
  Adapted ours(model, Under(own)), theirs(model, Under(library));
  const std::vector<int> mix = {0, -1, 1, 2, 3, 4, 0, 2};
  const std::vector<Prompt> prompts = theirs.Prompts(mix, 31), same = ours.Prompts(mix, 31);
  const auto answers = theirs.runner.Run(prompts, kBucket);
  const auto expected = ours.runner.Run(same, kBucket);
  const double most = own == "cuda-simt-f32" ? 1e-4 : 0.08;
  for (size_t row = 0; row < prompts.size(); ++row) {
    SCOPED_TRACE(row);
    const Bucket alone{static_cast<int32_t>(prompts[row].tokens.size()), 1};
    EXPECT_TRUE(
        SameBits(answers[row], theirs.runner.Run(std::vector<Prompt>{prompts[row]}, alone)[0]));
    for (size_t i = 0; i < expected[row].states.size(); ++i) {
      ASSERT_NEAR(answers[row].states[i], expected[row].states[i], most) << i;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Profiles, AdaptersAndALibrary,
                         ::testing::Values("cuda-simt-f32", "cuda-simt-bf16"),
                         [](const auto& test) { return TestName(test.param); });

// Returns the root of the mean square of the difference, relative to `expected`.
double RelativeError(const std::vector<Answer>& got, const std::vector<Answer>& expected) {
  double error = 0, size = 0;
  for (size_t row = 0; row < got.size(); ++row) {
    for (size_t i = 0; i < got[row].states.size(); ++i) {
      const double want = expected[row].states[i];
      error += std::pow(got[row].states[i] - want, 2);
      size += want * want;
    }
  }
  return std::sqrt(error / size);
}

// The matrices are rounded to bf16. An adapter that was not added would be a larger difference.
TEST(AdaptersOnCuda, InBf16RowsAreCloseToThoseInF32) {
  const auto model = SmallModel();
  Adapted exact(model, Under("cuda-simt-f32")), half(model, Under("cuda-simt-bf16"));
  const std::vector<int> mix = {0, 1, 2, 3, 4};
  const auto expected = exact.runner.Run(exact.Prompts(mix, 37), kBucket);
  const auto base = exact.runner.Run(exact.Prompts({-1, -1, -1, -1, -1}, 37), kBucket);
  const double error = RelativeError(half.runner.Run(half.Prompts(mix, 37), kBucket), expected);
  EXPECT_LT(error, 0.02);
  EXPECT_GT(RelativeError(base, expected), 3 * error);
}

// The ranks of one step fill one tile of columns or several.
TEST(AdaptersOnCuda, ALargeRankSharesAStepWithSmallOnes) {
  const auto model = SmallModel();
  const TemporaryDirectory folder;
  WriteAdapter(*model, 41, 200, kernels::DType::kF32, folder.File("large"));
  const auto large = LoadAdapter("large", *model, Directory::Open(folder.File("large")).value());
  ASSERT_TRUE(large.ok()) << large.status();
  Adapted cuda(model, Under("cuda-simt-f32"));
  Adapted cpu(model, MakeCpuBackend({.threads = 1, .profile = "cpu-portable-f32"}).value());
  for (Adapted* const each : {&cuda, &cpu}) {
    each->adapters.push_back(each->runner.executable().LoadAdapter(**large).value());
  }
  const std::vector<int> mix = {kAdapters, 0, -1, kAdapters, 1, 4};
  const std::vector<Prompt> prompts = cuda.Prompts(mix, 43);
  const auto answers = cuda.runner.Run(prompts, kBucket);
  const auto expected = cpu.runner.Run(cpu.Prompts(mix, 43), kBucket);
  for (size_t row = 0; row < mix.size(); ++row) {
    SCOPED_TRACE(row);
    for (size_t i = 0; i < expected[row].states.size(); ++i) {
      ASSERT_NEAR(answers[row].states[i], expected[row].states[i], 1e-4) << i;
    }
    const Bucket alone{static_cast<int32_t>(prompts[row].tokens.size()), 1};
    EXPECT_TRUE(
        SameBits(answers[row], cuda.runner.Run(std::vector<Prompt>{prompts[row]}, alone)[0]));
  }
}

// The device's work runs as late as possible, so memory that is released too early is found.
TEST(AdaptersOnCuda, AnAdapterIsUnloadedWhileItsRequestsRunAndGivesItsMemoryBack) {
  const auto model = SmallModel();
  auto device = simt::MakeSimtDevice();
  simt::SimtDevice& observed = *device;
  const std::unique_ptr<Backend> backend =
      MakeCudaBackend(std::move(device), {.dtype = "f32", .poison = true}).value();
  EngineOptions options;
  options.batch.max_batch_tokens = 32;
  options.batch.max_batch_sequences = 4;
  options.ladder.max_buckets = 2;
  options.queue.max_wait_us = 3'600'000'000;  // the emulator's steps may be slow
  RecordingObserver observer;
  const auto engine = Engine::Create(options, backend.get(), Clock::Real(), &observer);
  ASSERT_EQ(engine->Serve(model), absl::OkStatus());
  const uint64_t seed = 6161;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<RecordingSink>> expected;
  for (int i = 0; i < 8; ++i) {
    Request request =
        RandomRequest(model, random, {.most_rows = 1, .most_length = 6, .most_tokens = 6});
    if (i % 4 > 0) Mutable(request.spec).adapter = std::to_string(i % 4);
    requests.push_back(request);
    expected.push_back(SubmitTo(engine.get(), request));
    expected.back()->AwaitDone();
    ASSERT_TRUE(expected.back()->status().ok()) << expected.back()->status();
  }
  const int64_t loaded = observed.counts().device_bytes;
  const int64_t of_adapters = engine->Stats()[0].adapters.bytes;
  for (int round = 0; round < 2; ++round) {
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (const Request& request : requests) sinks.push_back(SubmitTo(engine.get(), request));
    for (const AdapterSource& adapter : model->adapters) {
      ASSERT_EQ(engine->UnloadAdapter(*model, adapter.name), absl::OkStatus());
    }
    for (size_t i = 0; i < sinks.size(); ++i) {
      SCOPED_TRACE(i);
      sinks[i]->AwaitDone();
      ExpectSameAnswer(*expected[i], *sinks[i]);
    }
    for (const AdapterSource& adapter : model->adapters) {
      ASSERT_EQ(engine->LoadAdapter(*model, adapter), absl::OkStatus());
    }
  }
  for (const AdapterSource& adapter : model->adapters) {
    ASSERT_EQ(engine->UnloadAdapter(*model, adapter.name), absl::OkStatus());
  }
  engine->Drain(MonoTime::max());
  EXPECT_EQ(engine->Stats()[0].adapters.bytes, 0);
  EXPECT_EQ(observed.counts().device_bytes, loaded - of_adapters);
  EXPECT_EQ(observed.fault(), "");
}

}  // namespace
}  // namespace sluice::testing
