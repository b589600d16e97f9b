#include "engine/cuda/dense_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>

#include "engine/cuda/emulator/simt_device.h"
#include "kernels/cuda/bfloat16.h"
#include "tests/support/device_lab.h"

namespace sluice {
namespace {

using kernels::cuda::BFloat16;
using simt::SimtDense;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr DenseShape kShape = {.k = 20, .n = 12, .half = false, .bias = true, .accumulate = false};

class DenseLayersTest : public ::testing::Test {
 protected:
  void Offer(std::vector<SimtDense> algorithms, int64_t memory_bytes = 1 << 30) {
    auto device =
        simt::MakeSimtDevice({.memory_bytes = memory_bytes, .dense = std::move(algorithms)});
    device_ = device.get();
    lab_ = std::make_unique<DeviceLab>(std::move(device));
    layers_ = std::make_unique<DenseLayers>(*device_, lab_->stream(), &table_);
    const std::vector<float> weight = Random(kShape.k * kShape.n), bias = Random(kShape.n);
    weight_ = lab_->Put(weight);
    bias_ = lab_->Put(bias);
    half_weight_ = lab_->Put(Halved(weight));
    half_bias_ = lab_->Put(Halved(bias));
  }
  static std::vector<BFloat16> Halved(const std::vector<float>& values) {
    std::vector<BFloat16> halved;
    for (const float value : values) halved.push_back(kernels::cuda::Narrow<BFloat16>(value));
    return halved;
  }
  void Keep(const DenseShape& shape, SimtDense algorithm) {
    ASSERT_TRUE(table_.Add(shape, {static_cast<uint64_t>(algorithm)}, "").ok());
  }
  absl::StatusOr<const DenseLayer*> Find(const DenseShape& shape = kShape) {
    if (shape.half) return layers_->Find(shape, half_weight_, half_bias_);
    return layers_->Find(shape, weight_, bias_);
  }
  // Returns which of `algorithms` is chosen for the shape; nullopt if none is.
  std::optional<SimtDense> Found(std::vector<SimtDense> algorithms, const DenseShape& shape) {
    Offer(std::move(algorithms));
    const DenseLayer* const layer = Find(shape).value();
    if (layer == nullptr) return std::nullopt;
    return static_cast<SimtDense>(layer->algorithm()[0]);
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
  const BFloat16* half_weight_ = nullptr;
  const BFloat16* half_bias_ = nullptr;
  AlgorithmTable table_{"SIMT emulator", "pretended"};
};

TEST_F(DenseLayersTest, TakesTheFirstAlgorithmWhoseRowsDoNotDependOnTheirNumber) {
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

TEST_F(DenseLayersTest, TheChosenAlgorithmComputesTheLayer) {
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

// The layer's bits are those of a run of few rows, whatever the number of rows and of slices.
TEST_F(DenseLayersTest, ManyRowsAreComputedInSlicesThatWereTried) {
  Offer({SimtDense::kInvariant});
  const DenseLayer& layer = *Find().value();
  for (const int32_t rows : {1, 33, 1000, kMostDenseRows, kMostDenseRows + 33}) {
    const int64_t computed = DenseRows(rows);
    const std::vector<float> x = Random(computed * kShape.k);
    auto* const out = lab_->Room<float>(computed * kShape.n);
    RunInSlices(layer, kShape, {lab_->Put(x), weight_, bias_, rows, out}, lab_->stream());
    const auto got = lab_->Get(out, static_cast<size_t>(computed * kShape.n));
    const std::vector<float> last(&x[(rows - 1) * kShape.k], &x[(rows - 1) * kShape.k] + kShape.k);
    auto* const alone = lab_->Room<float>(kShape.n);
    layer.Run({lab_->Put(last), weight_, bias_, 1, alone}, lab_->stream());
    EXPECT_THAT(lab_->Get(alone, kShape.n),
                ElementsAreArray(&got[(rows - 1) * kShape.n], static_cast<size_t>(kShape.n)))
        << rows << " rows";
  }
  EXPECT_TRUE(lab_->Finish().ok());
}

TEST(TriedRowsTest, ANumberOfRowsIsRoundedUpByAtMostAQuarter) {
  int32_t tried = 0;
  for (int32_t rows = 1; rows <= kMostDenseRows; ++rows) {
    const int32_t computed = TriedRows(rows);
    EXPECT_GE(computed, rows);
    EXPECT_EQ(TriedRows(computed), computed);
    EXPECT_LE(4 * computed, rows > 32 ? 5 * rows + 4 : 8 * rows) << rows;
    if (computed == rows) ++tried;
  }
  EXPECT_EQ(tried, 34);
  EXPECT_EQ(DenseRows(3 * kMostDenseRows), 3 * kMostDenseRows);
  EXPECT_EQ(DenseRows(kMostDenseRows + 33), kMostDenseRows + 40);
}

TEST_F(DenseLayersTest, AnAlgorithmThatIsWrongInEveryRowIsRefused) {
  for (const bool half : {false, true}) {
    DenseShape shape = kShape;
    shape.half = half;
    EXPECT_EQ(Found({SimtDense::kUnfinished}, shape), std::nullopt);
    EXPECT_EQ(Found({SimtDense::kUnfinished, SimtDense::kBackwards}, shape), SimtDense::kBackwards);
    shape.accumulate = true;
    EXPECT_EQ(Found({SimtDense::kUnfinished, SimtDense::kInvariant}, shape), SimtDense::kInvariant);
  }
}

TEST_F(DenseLayersTest, AnAlgorithmThatDependsOnTheWorkspacesContentsIsRefused) {
  EXPECT_EQ(Found({SimtDense::kTrustsWorkspace}, kShape), std::nullopt);
  EXPECT_EQ(Found({SimtDense::kTrustsWorkspace, SimtDense::kWorkspace}, kShape),
            SimtDense::kWorkspace);
  EXPECT_EQ(Find().value()->workspace_bytes(), kShape.n * sizeof(float));
  EXPECT_TRUE(lab_->Finish().ok());
}

TEST_F(DenseLayersTest, AnAlgorithmThatAppliesAnotherActivationIsRefused) {
  for (const bool half : {false, true}) {
    for (const auto activation : {DenseActivation::kRelu, DenseActivation::kGeluTanh}) {
      DenseShape shape = kShape;
      shape.half = half;
      EXPECT_EQ(Found({SimtDense::kWrongFunction}, shape), SimtDense::kWrongFunction) << "unused";
      shape.activation = activation;
      for (const SimtDense wrong : {SimtDense::kWrongFunction, SimtDense::kDropsNaN}) {
        EXPECT_EQ(Found({wrong}, shape), std::nullopt) << ToString(shape);
        EXPECT_EQ(Found({wrong, SimtDense::kInvariant}, shape), SimtDense::kInvariant);
      }
    }
  }
}

// The head never has more rows than it is tried with, so an algorithm that varies with more is
// accepted.
TEST_F(DenseLayersTest, AHeadIsTriedWithNoMoreRowsThanItEverHas) {
  DenseShape shape = kShape;
  EXPECT_EQ(Found({SimtDense::kVaries}, shape), std::nullopt);
  shape.bias = false;
  shape.half = shape.head = true;
  EXPECT_EQ(Found({SimtDense::kVaries}, shape), SimtDense::kVaries);
  shape.head = false;
  EXPECT_NE(Find(shape).value(), Find().value());
}

TEST_F(DenseLayersTest, TheTablesAlgorithmIsTriedFirst) {
  Keep(kShape, SimtDense::kBackwards);
  EXPECT_EQ(Found({SimtDense::kInvariant, SimtDense::kBackwards}, kShape), SimtDense::kBackwards);
  DenseShape other = kShape;
  other.accumulate = true;
  EXPECT_EQ(Found({SimtDense::kInvariant, SimtDense::kBackwards}, other), SimtDense::kInvariant);
  EXPECT_THAT(layers_->notices(), IsEmpty());
}

TEST_F(DenseLayersTest, ATablesAlgorithmThatFailsTheTrialIsNotUsed) {
  Keep(kShape, SimtDense::kVaries);
  EXPECT_EQ(Found({SimtDense::kInvariant, SimtDense::kVaries}, kShape), SimtDense::kInvariant);
  EXPECT_THAT(layers_->notices(),
              ElementsAre("the table of algorithms is not followed for 20 x 12 f32, bias: rows "
                          "depend on their number"));
  DenseShape other = kShape;
  other.accumulate = true;
  Keep(other, static_cast<SimtDense>(99));
  EXPECT_EQ(Found({SimtDense::kBackwards}, other), SimtDense::kBackwards);
  EXPECT_THAT(layers_->notices(),
              ElementsAre(HasSubstr("its algorithm is none of the library's candidates")))
      << "what a table says is not handed to the library";
}

TEST_F(DenseLayersTest, PassingReturnsUpToTheGivenNumberOfAlgorithms) {
  Offer({SimtDense::kVaries, SimtDense::kBackwards, SimtDense::kUnfinished, SimtDense::kInvariant});
  EXPECT_EQ(layers_->Passing(kShape, weight_, bias_, 9)->size(), 2u);
  EXPECT_EQ(layers_->Passing(kShape, weight_, bias_, 1)->size(), 1u);
}

TEST_F(DenseLayersTest, ReturnsErrorsOfTheDevice) {
  Offer({SimtDense::kInvariant}, 1 << 16);
  EXPECT_EQ(Find().status().code(), absl::StatusCode::kResourceExhausted);
  Offer({SimtDense::kInvariant});
  device_->Lose("gone");
  EXPECT_EQ(Find().status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice
