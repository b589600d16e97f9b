#include "engine/cuda/dense_layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/simt/simt_device.h"
#include "tests/support/device_lab.h"

namespace sluice {
namespace {

using simt::SimtDense;

constexpr DenseShape kShape = {.k = 20, .n = 12, .half = false, .bias = true, .accumulate = false};

class DenseLayersTest : public ::testing::Test {
 protected:
  void Offer(std::vector<SimtDense> algorithms, int64_t memory_bytes = 1 << 30) {
    auto device =
        simt::MakeSimtDevice({.memory_bytes = memory_bytes, .dense = std::move(algorithms)});
    device_ = device.get();
    lab_ = std::make_unique<DeviceLab>(std::move(device));
    layers_ = std::make_unique<DenseLayers>(*device_, lab_->stream());
    weight_ = lab_->Put(Random(kShape.k * kShape.n));
    bias_ = lab_->Put(Random(kShape.n));
  }
  absl::StatusOr<const DenseLayer*> Find(const DenseShape& shape = kShape) {
    return layers_->Find(shape, weight_, bias_);
  }
  std::vector<float> Random(int64_t n) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = uniform(random_);
    return values;
  }

  std::mt19937_64 random_{7};
  simt::SimtDevice* device_ = nullptr;
  std::unique_ptr<DeviceLab> lab_;
  std::unique_ptr<DenseLayers> layers_;
  const float* weight_ = nullptr;
  const float* bias_ = nullptr;
};

TEST_F(DenseLayersTest, TakesTheFirstWhoseRowsDoNotDependOnTheirNumber) {
  Offer({SimtDense::kVaries});
  EXPECT_EQ(Find().value(), nullptr);
  Offer({});
  EXPECT_EQ(Find().value(), nullptr);
  Offer({SimtDense::kVaries, SimtDense::kInvariant});
  const DenseLayer* const layer = Find().value();
  ASSERT_NE(layer, nullptr);
  EXPECT_EQ(Find().value(), layer) << "tried once";
  DenseShape other = kShape;
  other.accumulate = true;
  EXPECT_NE(Find(other).value(), layer);
}

TEST_F(DenseLayersTest, WhatIsFoundComputesTheLayer) {
  Offer({SimtDense::kVaries, SimtDense::kInvariant});
  constexpr int32_t kRows = 100;
  const std::vector<float> x = Random(kRows * kShape.k);
  auto* const out = lab_->Room<float>(kRows * kShape.n);
  Find().value()->Run({lab_->Put(x), weight_, bias_, kRows, out}, lab_->stream());
  const auto weight = lab_->Get(weight_, static_cast<size_t>(kShape.k * kShape.n));
  const auto bias = lab_->Get(bias_, static_cast<size_t>(kShape.n));
  const auto got = lab_->Get(out, static_cast<size_t>(kRows * kShape.n));
  for (int32_t r = 0; r < kRows; ++r) {
    for (int32_t n = 0; n < kShape.n; ++n) {
      double expected = bias[n];
      for (int32_t k = 0; k < kShape.k; ++k) {
        expected += double{x[r * kShape.k + k]} * weight[k * kShape.n + n];
      }
      ASSERT_NEAR(got[r * kShape.n + n], expected, 1e-5) << r << ", " << n;
    }
  }
}

TEST_F(DenseLayersTest, ErrorsAreTheDevices) {
  Offer({SimtDense::kInvariant}, 1 << 16);
  EXPECT_EQ(Find().status().code(), absl::StatusCode::kResourceExhausted);
  Offer({SimtDense::kInvariant});
  device_->Lose("gone");
  EXPECT_EQ(Find().status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice
