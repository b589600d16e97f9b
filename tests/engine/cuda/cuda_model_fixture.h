// The fixture of the tests of models on an emulated device.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/emulator/simt_device.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::testing {

// A model in an emulated device that the test can observe.
class CudaModelTest : public ::testing::Test {
 protected:
  void Load(const ModelConfig& config, const simt::SimtOptions& options = {},
            const std::string& dense = "own", const std::string& algorithms = "",
            const std::string& kernels = "portable", const std::string& dtype = "f32") {
    model_ = RandomModel(config, 3);
    auto device = simt::MakeSimtDevice(options);
    device_ = device.get();
    executable_ = nullptr;  // ends before the backend that made it
    backend_ = MakeCudaBackend(
                   std::move(device),
                   {.dtype = dtype, .dense = dense, .algorithms = algorithms, .kernels = kernels})
                   .value();
    auto executable = backend_->Load(model_);
    ASSERT_TRUE(executable.ok()) << executable.status();
    executable_ = *std::move(executable);
  }

  // Returns the logits of the last row of one sequence of `length` tokens.
  absl::StatusOr<std::vector<float>> Replay(const Plan& plan, Slot& slot, int32_t length) {
    std::mt19937_64 random(length);
    const std::vector<int32_t> tokens = RandomTokens(random, length, model_->config.vocab_size);
    std::vector<int32_t> pages(slot.pages());
    std::iota(pages.begin(), pages.end(), 0);
    StepBatch batch(plan.bucket().tokens, 1, static_cast<int32_t>(model_->config.max_positions),
                    backend_->info().page_tokens);
    std::vector<float> logits(model_->config.vocab_size);
    kernels::SampleResult result;
    const StepSequence step{0, length, tokens.data(), pages.data()};
    const SampledRow sampled{.position = length - 1, .logits = logits.data(), .result = &result};
    batch.Assign({&step, 1}, {&sampled, 1}, executable_->row_order());
    SLUICE_RETURN_IF_ERROR(executable_->Replay(plan, slot, batch));
    return logits;
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ExecutableModel> executable_;
  simt::SimtDevice* device_ = nullptr;
};

}  // namespace sluice::testing
