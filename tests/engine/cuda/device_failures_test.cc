// Serves steps on a device where one call fails, for each call. A step has the right bits or an
// error, the loss of the device ends everything, and nothing leaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/emulator/simt_device.h"
#include "kernels/cuda/kv_cache.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::testing {
namespace {

using simt::SimtCall;
using simt::SimtCounts;
using simt::SimtFailure;

constexpr Bucket kBucket{12, 2};
constexpr int32_t kSteps = 4;

// A step of one sequence with pages of its own. The last one continues the first.
class PromptStep {
 public:
  PromptStep(const ModelConfig& config, RowOrder order, int32_t index)
      : batch_(kBucket.tokens, kBucket.sequences, static_cast<int32_t>(config.max_positions),
               kernels::cuda::kPageTokens) {
    const bool continues = index == kSteps - 1;
    const int32_t first = continues ? 5 : 0, count = continues ? 1 : 5 + 3 * index;
    const int32_t page = continues ? 0 : index;
    std::mt19937_64 random(first);  // the same tokens in every step of a prompt
    const std::vector<int32_t> tokens = RandomTokens(random, count, config.vocab_size);
    results_.resize(count);
    logits_.resize(count * config.vocab_size);
    states_.resize(config.hidden_size);
    std::vector<SampledRow> sampled;
    for (int32_t i = 0; i < count; ++i) {
      sampled.push_back({.position = first + i,
                         .target = i == count - 1 ? -1 : 7,
                         .params = {.temperature = 1, .top_k = 9},
                         .logits = index == 1 ? logits_.data() + i * config.vocab_size : nullptr,
                         .result = &results_[i]});
    }
    const StepSequence sequence{first, count, tokens.data(), &page};
    const StateSum state{.sequence = 0, .position = first + count - 1, .out = states_.data()};
    batch_.Assign({&sequence, 1}, sampled, order, {&state, 1});
  }

  const StepBatch& batch() const { return batch_; }
  // Returns the bytes of all results.
  std::string Bits() const {
    std::string bits;
    for (const kernels::SampleResult& result : results_) {
      bits.append(reinterpret_cast<const char*>(&result.token), sizeof(result.token));
      bits.append(reinterpret_cast<const char*>(&result.logprob), sizeof(result.logprob));
    }
    bits.append(reinterpret_cast<const char*>(logits_.data()), logits_.size() * sizeof(float));
    bits.append(reinterpret_cast<const char*>(states_.data()), states_.size() * sizeof(double));
    return bits;
  }

 private:
  StepBatch batch_;
  std::vector<kernels::SampleResult> results_;
  std::vector<float> logits_;
  std::vector<double> states_;
};

using Answers = std::vector<absl::StatusOr<std::string>>;  // the bits of each step

// A model that is loaded and serves. Each part is tried once again after an error that the device
// recovers from.
class Service {
 public:
  Service(std::shared_ptr<const Model> model, const simt::SimtOptions& options)
      : model_(std::move(model)) {
    auto device = simt::MakeSimtDevice(options);
    device_ = device.get();
    backend_ =
        MakeCudaBackend(std::move(device),
                        {.dtype = "f32", .dense = options.dense.empty() ? "own" : "cublaslt"})
            .value();
  }

  // Returns the answers of this number of rounds of steps; fewer if the device is lost.
  std::vector<Answers> Run(int count) {
    std::vector<Answers> rounds;
    const auto make = [this](auto made, auto* part) {
      auto value = made();
      if (!value.ok()) Note(value.status());
      if (!value.ok() && !lost()) value = made();
      EXPECT_EQ(value.ok(), !lost()) << value.status();
      if (value.ok()) *part = *std::move(value);
    };
    make([this] { return backend_->Load(model_); }, &executable_);
    if (lost()) return rounds;
    for (size_t call = 0; call < loading_.size(); ++call) {
      loading_[call] = calls(static_cast<SimtCall>(call));
    }
    make([this] { return executable_->CreateSlot(kBucket, kSteps); }, &slot_);
    if (lost()) return rounds;
    make([this] { return executable_->Prepare(kBucket); }, &plan_);
    if (plan_ == nullptr) return rounds;
    for (int round = 0; round < count && !lost(); ++round) rounds.push_back(RunRound());
    return rounds;
  }

  // Expects that the device takes nothing more, and ends all parts.
  void End() {
    if (lost()) ExpectNothingMore();
    plan_ = nullptr;
    slot_ = nullptr;
    executable_ = nullptr;
    EXPECT_EQ(device_->fault(), "");
    const SimtCounts left = device_->counts();
    EXPECT_EQ(left.device_bytes, 0);
    EXPECT_EQ(left.pinned_bytes, 0);
    EXPECT_EQ(left.streams, 0);
    EXPECT_EQ(left.events, 0);
    EXPECT_EQ(left.graphs, 0);
  }

  bool lost() const { return lost_; }
  const std::vector<absl::Status>& errors() const { return errors_; }
  int64_t calls(SimtCall call) const { return device_->calls(call); }
  int64_t calls_to_load(SimtCall call) const { return loading_[static_cast<size_t>(call)]; }

 private:
  void Note(const absl::Status& status) {
    EXPECT_TRUE(!lost_ || absl::IsUnavailable(status)) << status;
    lost_ |= absl::IsUnavailable(status);
    errors_.push_back(status);
  }

  // Steps are started as early as the backend allows.
  Answers RunRound() {
    std::vector<std::unique_ptr<PromptStep>> steps;
    Answers answers;
    const auto finish = [&] {
      const absl::Status status = executable_->Finish(*slot_);
      if (!status.ok()) Note(status);
      if (status.ok()) {
        EXPECT_FALSE(lost()) << "a step succeeds on a lost device";
        answers.push_back(steps[answers.size()]->Bits());
      } else {
        answers.push_back(status);
      }
    };
    for (int32_t i = 0; i < kSteps; ++i) {
      if (steps.size() - answers.size() == 2) finish();
      if (i == kSteps - 1 && !answers[0].ok()) break;
      steps.push_back(std::make_unique<PromptStep>(model_->config, executable_->row_order(), i));
      executable_->Start(*plan_, *slot_, steps.back()->batch());
    }
    while (answers.size() < steps.size()) finish();
    if (steps.size() < kSteps) answers.push_back(answers[0].status());
    return answers;
  }

  void ExpectNothingMore() {
    const SimtCounts before = device_->counts();
    const auto model = backend_->Load(model_);
    EXPECT_TRUE(absl::IsUnavailable(model.status())) << model.status();
    if (executable_ != nullptr) {
      EXPECT_TRUE(absl::IsUnavailable(executable_->CreateSlot(kBucket, kSteps).status()));
    }
    if (slot_ != nullptr) {  // a plan would be captured for it
      EXPECT_TRUE(absl::IsUnavailable(executable_->Prepare(kBucket).status()));
    }
    if (plan_ != nullptr) {
      for (const auto& answer : RunRound()) EXPECT_TRUE(absl::IsUnavailable(answer.status()));
    }
    SimtCounts done = device_->counts() - before;
    done.refused = 0;
    EXPECT_TRUE(done == SimtCounts{}) << "a lost device is used";
    EXPECT_EQ(backend_->FreeMemory(), 0);
  }

  const std::shared_ptr<const Model> model_;
  std::unique_ptr<Backend> backend_;
  simt::SimtDevice* device_ = nullptr;
  std::unique_ptr<ExecutableModel> executable_;
  std::unique_ptr<Slot> slot_;
  std::unique_ptr<Plan> plan_;
  bool lost_ = false;
  std::vector<absl::Status> errors_;
  std::array<int64_t, CountEnumerators<SimtCall>()> loading_ = {};
};

struct Code {
  int32_t code, probe;
  absl::StatusCode status;
};
constexpr Code kCodes[] = {
    {2, 0, absl::StatusCode::kResourceExhausted}, {999, 0, absl::StatusCode::kInternal},
    {802, 0, absl::StatusCode::kInternal},        {700, 0, absl::StatusCode::kUnavailable},
    {719, 719, absl::StatusCode::kUnavailable},   {999, 999, absl::StatusCode::kUnavailable},
    {802, 802, absl::StatusCode::kUnavailable},   {911, 0, absl::StatusCode::kUnavailable}};

class DeviceFailuresTest : public ::testing::TestWithParam<SimtCall> {
 protected:
  simt::SimtOptions Options() const {
    simt::SimtOptions options;
    if (GetParam() == SimtCall::kDense) options.dense = {simt::SimtDense::kWorkspace};
    return options;
  }
  static absl::StatusCode ExpectedCode(const Code& code) {
    switch (GetParam()) {
      case SimtCall::kDense:
        return absl::StatusCode::kInternal;
      case SimtCall::kSynchronizeStream:
      case SimtCall::kSynchronizeEvent:
        return absl::StatusCode::kUnavailable;
      default:
        return code.status;
    }
  }

  const std::shared_ptr<const Model> model_ = RandomModel(TinyConfig(1), 3);
};

TEST_P(DeviceFailuresTest, StepsHaveExactBitsOrAnErrorAndALostDeviceEndsAll) {
  Service whole(model_, Options());
  const std::vector<Answers> expected = whole.Run(2);
  whole.End();
  const int64_t calls = whole.calls(GetParam());
  ASSERT_EQ(expected.size(), 2u);
  for (const auto& answer : expected[0]) ASSERT_TRUE(answer.ok());
  ASSERT_TRUE(expected[0] == expected[1]);

  // The program runs in each order of the device's work, and tries other positions and codes in
  // each.
  constexpr size_t kMostPositions = 8;
  const auto order = simt::SimtOrderOfEnvironment();
  const uint64_t seed = 5 + static_cast<uint64_t>(order);
  std::mt19937_64 random(seed);
  // An algorithm of the library that fails in its trial is not used, so the bits differ.
  const bool library = GetParam() == SimtCall::kDense;
  const int64_t before = library ? whole.calls_to_load(GetParam()) : 0;
  std::vector<int64_t> positions(calls - before);
  std::iota(positions.begin(), positions.end(), before + 1);
  std::shuffle(positions.begin(), positions.end(), random);
  const int codes_each = positions.size() <= kMostPositions ? 2 : 1;
  positions.resize(std::min(positions.size(), kMostPositions));
  size_t turn = 3 * static_cast<size_t>(order);
  for (const int64_t nth : positions) {
    for (int i = 0; i < codes_each; ++i) {
      const Code& code = kCodes[turn++ % std::size(kCodes)];
      SCOPED_TRACE(::testing::Message() << NameOf(GetParam()) << " " << nth << " of " << calls
                                        << " fails with " << code.code << ", probe " << code.probe);
      simt::SimtOptions options = Options();
      options.failures = {{GetParam(), nth, code.code, code.probe}};
      Service service(model_, options);
      const std::vector<Answers> rounds = service.Run(3);
      const absl::StatusCode expected_code = ExpectedCode(code);
      EXPECT_EQ(service.lost(), expected_code == absl::StatusCode::kUnavailable);
      for (const absl::Status& error : service.errors()) {
        EXPECT_EQ(error.code(), expected_code) << error;
      }
      for (const Answers& answers : rounds) {
        for (size_t step = 0; step < answers.size(); ++step) {
          if (answers[step].ok()) {
            EXPECT_TRUE(*answers[step] == *expected[0][step]) << "step " << step;
          }
        }
      }
      if (!service.lost()) {
        EXPECT_TRUE(rounds.back() == expected[0]) << "the failure was before";
      }
      service.End();
    }
  }
}

// Steps overlap, and the inputs of later steps are sent on a separate stream.
TEST(DeviceOrderTest, StepsHaveTheSameBitsInAnyOrderOfWork) {
  const auto model = RandomModel(TinyConfig(1), 3);
  Service late(model, {.order = simt::SimtOrder::kLate});
  const std::vector<Answers> expected = late.Run(2);
  late.End();
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Service service(model, {.seed = seed, .order = simt::SimtOrder::kRandom});
    EXPECT_TRUE(service.Run(2) == expected);
    service.End();
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, DeviceFailuresTest, ::testing::ValuesIn([] {
                           std::vector<SimtCall> calls;
                           for (const auto& entry : kEnumNames<SimtCall>) {
                             if (entry.value != SimtCall::kFill) calls.push_back(entry.value);
                           }
                           return calls;
                         }()),
                         [](const auto& named) { return std::string(NameOf(named.param)); });

}  // namespace
}  // namespace sluice::testing
