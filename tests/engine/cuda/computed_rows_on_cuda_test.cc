// Compares ComputedRows with the multiply-adds that the emulator counts while it computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <variant>

#include "engine/cuda/joined_graph.h"
#include "kernels/simt/costs.h"
#include "tests/engine/cuda/cuda_model_fixture.h"

namespace sluice::testing {
namespace {

constexpr Bucket kLargest{320, 1};
constexpr int64_t kOfAnInstruction = 16 * 8 * 16;  // multiply-adds of kernels/simt's MultiplyAdd

// Returns the tokens of a bucket, and of a step in it.
std::pair<int32_t, int32_t> Draw(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto bucket = static_cast<int32_t>(1 + random() % kLargest.tokens);
  return {bucket, static_cast<int32_t>(1 + random() % bucket)};
}

class ComputedRowsOnCuda : public CudaModelTest {
 protected:
  void LoadHalf(const std::string& dense, bool position_wise) {
    ModelConfig config = TinySluiceConfig(2);
    config.max_positions = kLargest.tokens;
    if (position_wise) {
      config.position_wise.layers[0][0] = true;
      config.position_wise.max_positions = kLargest.tokens;
    }
    model_ = RandomModel(config, 3);
    simt::SimtOptions options;
    if (dense == "cublaslt") options.dense = {simt::SimtDense::kInvariant};
    auto device = simt::MakeSimtDevice(options);
    device_ = device.get();
    backend_ =
        MakeCudaBackend(std::move(device), {.dtype = "bf16", .dense = dense, .kernels = "portable"})
            .value();
    executable_ = backend_->Load(model_).value();
    slot_ = executable_->CreateSlot(kLargest, /*pages=*/kLargest.tokens).value();
  }

  struct Counted {
    double library = 0, own = 0;  // multiply-adds
  };
  // Runs a step of `tokens` tokens in the bucket.
  Counted Run(int32_t bucket_tokens, int32_t tokens) {
    const Bucket bucket{bucket_tokens, 1};
    // Without a graph, so that the kernels are launched on this thread, where the meter counts.
    const auto plan = executable_->Eager(bucket).value();
    const int64_t before = device_->counts().layer_multiply_adds;
    const simt::CostMeter meter;
    EXPECT_TRUE(Replay(*plan, *slot_, tokens).ok());
    Counted counted;
    counted.library = static_cast<double>(device_->counts().layer_multiply_adds - before);
    for (const simt::LaunchCosts& launch : meter.launches()) {
      if (launch.kernel.find("Projection") == std::string::npos) continue;
      counted.own += static_cast<double>(launch.products * kOfAnInstruction);
    }
    return counted;
  }

  // Returns the multiply-adds of a row in all layers but the head.
  double MultiplyAddsOfARow() const {
    double sum = 0;
    for (const GraphOp& op : model_->graph.ops) {
      const auto* const linear = std::get_if<LinearOp>(&op);
      if (linear == nullptr) continue;
      sum += double{1} * static_cast<double>(model_->graph.buffers[linear->in].width) *
             static_cast<double>(model_->graph.buffers[linear->out].width);
    }
    return sum;
  }

  std::unique_ptr<Slot> slot_;
};

TEST_F(ComputedRowsOnCuda, EqualTheRowsThatTheLibraryComputed) {
  LoadHalf("cublaslt", /*position_wise=*/false);
  ASSERT_FALSE(executable_->computed_rows().batch_only());
  bool rounded = false;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const auto [bucket, tokens] = Draw(seed);
    const Counted counted = Run(bucket, tokens);
    const int64_t rows = executable_->computed_rows().Of(bucket, tokens);
    EXPECT_EQ(counted.library / MultiplyAddsOfARow(), static_cast<double>(rows)) << bucket;
    rounded |= rows > bucket;
  }
  EXPECT_TRUE(rounded) << "some bucket was not a number of rows of the library";
}

// The portable kernels compute blocks of 8 rows with each instruction. The bucket selects the
// kernel, and the number of columns that are computed depends on the kernel.
TEST_F(ComputedRowsOnCuda, OfOurKernelsAreTheRowsOfTheBatch) {
  LoadHalf("own", /*position_wise=*/false);
  EXPECT_TRUE(executable_->computed_rows().batch_only());
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    const auto [drawn, tokens] = Draw(seed);
    const int32_t bucket = std::max(drawn, 16);
    // The rest is the head's one row.
    const double first = Run(bucket, 8).own, second = Run(bucket, 16).own;
    const double of_eight_rows = second - first, rest = first - of_eight_rows;
    ASSERT_GT(of_eight_rows, 0);
    const Counted counted = Run(bucket, tokens);
    EXPECT_EQ(counted.library, 0);
    EXPECT_EQ((counted.own - rest) / of_eight_rows, (tokens + 7) / 8) << bucket << ", " << tokens;
    EXPECT_EQ(executable_->computed_rows().Of(bucket, tokens), tokens);
  }
}

TEST_F(ComputedRowsOnCuda, AreCountedByLayerIfOnlySomeAreTheLibrarys) {
  LoadHalf("cublaslt", /*position_wise=*/true);
  const ComputedRows rows = executable_->computed_rows();
  ASSERT_EQ(rows.layers().size(), 1u);
  const double share = rows.layers()[0].share;
  EXPECT_GT(share, 0);
  EXPECT_LT(share, 1) << "position-wise layers are ours";
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    const auto [bucket, tokens] = Draw(seed);
    const Counted counted = Run(bucket, tokens);
    const double all = MultiplyAddsOfARow();
    EXPECT_GT(counted.own, 0);
    EXPECT_NEAR(counted.library / all, rows.OfBucketLayers(bucket), 1e-6 * bucket);
    EXPECT_EQ(rows.Of(bucket, tokens), std::llround(counted.library / all + (1 - share) * tokens));
  }
}

}  // namespace
}  // namespace sluice::testing
