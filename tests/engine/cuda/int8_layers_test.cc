// Int8 layers of a library: layers with exact sums serve, and have the bits of our kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "engine/cuda/dense_layers.h"
#include "engine/cuda/emulator/simt_device.h"
#include "kernels/cuda/int8.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/projection.h"
#include "tests/kernels/cuda/product_fixture.h"
#include "tests/support/device_lab.h"

namespace sluice {
namespace {

namespace cuda = kernels::cuda;
using simt::SimtDense;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// So deep that a float cannot hold the largest sums.
constexpr DenseShape kDeepShape = {
    .k = 4096, .n = 8, .type = DenseType::kInt8, .bias = false, .accumulate = false};

class Int8LayersTest : public ::testing::Test {
 protected:
  Int8LayersTest() { RecordProperty("seed", static_cast<int>(kSeed)); }

  void Offer(std::vector<SimtDense> algorithms, const DenseShape& shape = kDeepShape) {
    auto device = simt::MakeSimtDevice({.dense = std::move(algorithms)});
    device_ = device.get();
    lab_ = std::make_unique<DeviceLab>(std::move(device));
    layers_ = std::make_unique<DenseLayers>(*device_, lab_->stream());
    weight_ = lab_->Put(Random(int64_t{shape.k} * shape.n));
  }
  std::optional<SimtDense> Found(std::vector<SimtDense> algorithms,
                                 const DenseShape& shape = kDeepShape) {
    Offer(std::move(algorithms), shape);
    const DenseFamily* const layer = layers_->Find(shape, weight_, nullptr).value();
    if (layer == nullptr) return std::nullopt;
    return static_cast<SimtDense>(layer->reference().algorithm()[0]);
  }
  std::vector<int8_t> Random(int64_t n) {
    std::uniform_int_distribution<int32_t> uniform(-127, 127);
    std::vector<int8_t> values(n);
    for (int8_t& value : values) value = static_cast<int8_t>(uniform(random_));
    return values;
  }
  std::vector<float> Floats(int64_t n) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(n);
    for (float& value : values) value = uniform(random_);
    return values;
  }

  static constexpr uint64_t kSeed = 20261126;
  std::mt19937_64 random_{kSeed};
  simt::SimtDevice* device_ = nullptr;
  std::unique_ptr<DeviceLab> lab_;
  std::unique_ptr<DenseLayers> layers_;
  const int8_t* weight_ = nullptr;  // [n, k]
};

TEST_F(Int8LayersTest, TakesTheFirstAlgorithmWhoseSumsAreExact) {
  for (const SimtDense exact : {SimtDense::kInvariant, SimtDense::kVaries, SimtDense::kWorkspace}) {
    EXPECT_EQ(Found({exact}), exact) << "an integer sum has no order";
    EXPECT_THAT(layers_->notices(), IsEmpty());
  }
  for (const SimtDense wrong :
       {SimtDense::kUnfinished, SimtDense::kTrustsWorkspace, SimtDense::kFloatSums}) {
    EXPECT_EQ(Found({wrong}), std::nullopt) << static_cast<int>(wrong);
    EXPECT_THAT(layers_->notices(),
                ElementsAre("our kernel computes 4096 x 8 int8, because none of the library's "
                            "algorithms passes its trial"));
    EXPECT_EQ(Found({wrong, SimtDense::kInvariant}), SimtDense::kInvariant);
  }
  EXPECT_EQ(device_->fault(), "");
}

TEST_F(Int8LayersTest, ATablesAlgorithmThatRoundsItsSumsIsNamedWithTheRow) {
  AlgorithmTable table("SIMT emulator", "pretended");
  ASSERT_TRUE(table.Add(kDeepShape, {static_cast<uint64_t>(SimtDense::kFloatSums)}, "").ok());
  Offer({SimtDense::kInvariant, SimtDense::kFloatSums});
  DenseLayers layers(*device_, lab_->stream(), &table);
  EXPECT_NE(layers.Find(kDeepShape, weight_, nullptr).value(), nullptr);
  EXPECT_THAT(layers.notices(),
              ElementsAre(HasSubstr("not followed for 4096 x 8 int8: row 0 has")));
}

TEST_F(Int8LayersTest, WithoutAnAlgorithmForTheWidthsOurKernelComputesTheLayer) {
  DenseShape odd = kDeepShape;
  odd.n = 10;
  EXPECT_EQ(Found({SimtDense::kInvariant}, odd), std::nullopt);
  EXPECT_THAT(layers_->notices(), IsEmpty()) << "nothing was refused";
  odd.n = 12;
  EXPECT_EQ(Found({SimtDense::kInvariant}, odd), SimtDense::kInvariant);
  EXPECT_EQ(Found({}), std::nullopt);
}

// Row counts include fewer rows than the library takes, slices of its maximum, and a remainder.
TEST_F(Int8LayersTest, TheLibrarysLayerHasTheBitsOfOurKernel) {
  const DenseShape shape = {
      .k = 256, .n = 72, .type = DenseType::kInt8, .bias = false, .accumulate = false};
  Offer({SimtDense::kInvariant}, shape);
  const DenseFamily& layer = *layers_->Find(shape, weight_, nullptr).value();
  int8_t* const packed = lab_->Room<int8_t>(cuda::PackedElements<int8_t>(1, shape.k, shape.n));
  cuda::PackWeights<int8_t>(
      lab_->stream(), {.in = weight_, .matrices = 1, .k = shape.k, .n = shape.n, .out = packed});
  const float* const scales = lab_->Put(Floats(shape.n));
  const float* const bias = lab_->Put(Floats(shape.n));
  for (const int32_t rows : {1, 31, 33, kMaxDenseRows, kMaxDenseRows + 37}) {
    const int32_t live = rows - rows / 10;
    std::vector<float> row_scales = Floats(rows);
    row_scales[live / 2] = std::numeric_limits<float>::quiet_NaN();
    const int8_t* const x = lab_->Put(Random(Int8DenseRows(rows) * shape.k));
    const float* const scales_of_rows = lab_->Put(row_scales);
    const std::vector<float> before = Floats(int64_t{rows} * shape.n);
    cuda::ProjectionArgs<float, float, int8_t> own = {
        .x = x,
        .weight = packed,
        .bias = bias,
        .bias_stride = 0,
        .k = shape.k,
        .n = shape.n,
        .tiles = cuda::TilesOn(*lab_, {{0, 0, live}}, rows),
        .accumulate = true,
        .out = lab_->Put(before),
        .row_scales = scales_of_rows,
        .scales = scales};
    cuda::Project(lab_->stream(), own);
    float* const out = lab_->Put(before);
    RunInt8InSlices<float>(layer, shape,
                           {.x = x,
                            .weight = weight_,
                            .bias = nullptr,
                            .rows = rows,
                            .out = lab_->Room<int32_t>(Int8Sums(rows, shape.n))},
                           {.sums = nullptr,
                            .n = shape.n,
                            .rows = {lab_->Put<int32_t>({live}), rows},
                            .row_scales = scales_of_rows,
                            .scales = scales,
                            .bias = bias,
                            .accumulate = true,
                            .out = out},
                           lab_->stream());
    const auto expected = lab_->Get(reinterpret_cast<const uint32_t*>(own.out), before.size());
    const auto got = lab_->Get(reinterpret_cast<const uint32_t*>(out), before.size());
    EXPECT_EQ(got, expected) << rows << " rows, seed " << kSeed;
  }
  EXPECT_EQ(device_->fault(), "");
}

// Plants one bad argument after another in a call that the library takes.
TEST_F(Int8LayersTest, TheLibraryRefusesBadArguments) {
  Offer({SimtDense::kInvariant});
  const DenseLayer& layer = layers_->Find(kDeepShape, weight_, nullptr).value()->reference();
  const DenseArgs good = {.x = lab_->Put(Random(64 * kDeepShape.k)),
                          .weight = weight_,
                          .bias = nullptr,
                          .rows = kMinInt8Rows,
                          .out = lab_->Room<int32_t>(64 * kDeepShape.n)};
  const auto run = [&](auto change) {
    DenseArgs args = good;
    change(&args);
    layer.Run(args, lab_->stream());
    return lab_->stream().Synchronize().ok();
  };
  EXPECT_TRUE(run([](DenseArgs*) {}));
  EXPECT_FALSE(run([](DenseArgs* args) { args->rows = kMinInt8Rows / 2; }));
  EXPECT_FALSE(run([](DenseArgs* args) { args->rows = kMinInt8Rows + 1; }));
  EXPECT_FALSE(run([](DenseArgs* args) { args->rows = 2 * kMaxDenseRows; }));
  EXPECT_FALSE(run([](DenseArgs* args) { args->x = static_cast<const int8_t*>(args->x) + 16; }));
  EXPECT_FALSE(run([](DenseArgs* args) { args->out = const_cast<void*>(args->x); }));
  EXPECT_TRUE(run([](DenseArgs*) {})) << "the stream continues";
}

// The slices of every layer of a model are in the memory of the widest layer.
TEST(Int8RowsTest, SlicesHaveRoomForEveryRow) {
  constexpr int32_t kWidest = 6144;
  for (const int32_t n : {8, 1000, 1024, 1500, 2048, 4096, kWidest}) {
    DenseShape shape = kDeepShape;
    shape.n = n;
    const int32_t most = MaxRows(shape);
    EXPECT_LE(int64_t{most} * n, std::max(kInt8Sums, kMinInt8Slice * n)) << n;
    for (int32_t rows = 1; rows <= 2 * kMaxDenseRows + 5; ++rows) {
      int32_t run = 0, largest = 0;
      for (int32_t first = 0; first < rows; first += most) {
        const int32_t slice = TriedRows(shape, std::min(rows - first, most));
        ASSERT_LE(slice, most);
        largest = std::max(largest, slice);
        run = first + slice;
      }
      ASSERT_GE(run, rows);
      ASSERT_LE(run, Int8DenseRows(rows)) << n << " columns";
      ASSERT_LE(int64_t{largest} * n, Int8Sums(rows, kWidest)) << rows << " rows of " << n;
    }
  }
  EXPECT_EQ(MaxInt8Rows(1024), kMaxDenseRows);
  EXPECT_EQ(MaxInt8Rows(4096), kMinInt8Slice);
}

}  // namespace
}  // namespace sluice
