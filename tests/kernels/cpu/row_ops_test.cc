// Norms, activations, mixing and the embedding.
#include <cstring>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/exchange.h"
#include "kernels/cpu/mix.h"
#include "kernels/cpu/norm.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/norm.h"
#include "tests/kernels/common/row_op_bodies.h"
#include "tests/kernels/cpu/op_test.h"
#include "tests/support/invariance.h"

namespace sluice::kernels {
namespace {

constexpr RowsShape kRowShapes[] = {{3, 1},   {9, 2},   {2, 7},   {5, 8},  {1, 15},
                                    {7, 16},  {4, 17},  {6, 31},  {8, 33}, {3, 64},
                                    {5, 100}, {2, 513}, {9, 4096}};

// The functions that the shared bodies call.
class RowOpsTest : public OpTest {
 public:
  using Element = float;

  void RmsNorm(const float* x, const float* weight, float eps, const RowsShape& shape, float* out) {
    kernels::RmsNorm(Two(), x, weight, eps, shape.rows, shape.dim, out);
  }
  void LayerNorm(const float* x, const float* weight, const float* bias, float eps,
                 const RowsShape& shape, float* out) {
    kernels::LayerNorm(Two(), x, weight, bias, eps, shape.rows, shape.dim, out);
  }
  void Activate(Activation activation, const float* in, const float* up, const RowsShape& shape,
                float* out) {
    kernels::Activate(Two(), activation, in, up, shape.rows, shape.dim, out);
  }
  void Mix(const float* a, const float* a_weight, const float* b, const float* b_weight,
           int32_t /*repeat*/, const RowsShape& shape, float* out) {
    kernels::Mix(Two(), {a, a_weight, b, b_weight, shape.rows, shape.dim, out});
  }
  void Embed(const float* table, const int32_t* ids, bool accumulate, float scale,
             const RowsShape& shape, float* out) {
    kernels::Embed(Two(), {table, DType::kF32, ids, shape.rows, shape.dim, accumulate, scale, out});
  }

  void Exchange(const float* in, const std::vector<int32_t>& places, int32_t tokens, int32_t block,
                float* out) {
    kernels::Exchange(Two(), {in, places, tokens, block, out});
  }

  HostLab lab_;
};

TEST_P(RowOpsTest, RmsNormEqualsTheReference) {
  std::mt19937_64 random(31);
  ExpectRmsNormEqualsReference(*this, random, kRowShapes);
}

TEST_P(RowOpsTest, RmsNormOfZerosIsZero) {
  std::vector<float> x(10, 0.0f), out(10, kPoison);
  kernels::RmsNorm(One(), x.data(), nullptr, 1e-6f, 1, 10, out.data());
  EXPECT_EQ(out, x);
}

TEST_P(RowOpsTest, RmsNormRowsDoNotDependOnTheirBatch) {
  std::mt19937_64 random(32);
  for (int64_t dim : {33, 1000}) {
    const std::vector<float> x = RandomFloats(random, 70 * dim), weight = RandomFloats(random, dim);
    EXPECT_TRUE(RowsAreInvariant([&](std::span<const int32_t> rows) {
      std::vector<float> in, out(rows.size() * dim);
      for (int32_t row : rows) in.insert(in.end(), &x[row * dim], &x[row * dim] + dim);
      kernels::RmsNorm(Two(), in.data(), weight.data(), 1e-6f, static_cast<int64_t>(rows.size()),
                       dim, out.data());
      return out;
    }));
  }
}

TEST_P(RowOpsTest, LayerNormEqualsTheReference) {
  std::mt19937_64 random(36);
  ExpectLayerNormEqualsReference(*this, random, kRowShapes);
}

TEST_P(RowOpsTest, LayerNormRowsDoNotDependOnTheirBatch) {
  std::mt19937_64 random(37);
  for (int64_t dim : {33, 1000}) {
    const std::vector<float> x = RandomFloats(random, 70 * dim), weight = RandomFloats(random, dim);
    EXPECT_TRUE(RowsAreInvariant([&](std::span<const int32_t> rows) {
      std::vector<float> in, out(rows.size() * dim);
      for (int32_t row : rows) in.insert(in.end(), &x[row * dim], &x[row * dim] + dim);
      kernels::LayerNorm(Two(), in.data(), weight.data(), weight.data(), 1e-6f,
                         static_cast<int64_t>(rows.size()), dim, out.data());
      return out;
    }));
  }
}

TEST_P(RowOpsTest, ActivationsEqualTheReference) {
  std::mt19937_64 random(33);
  ExpectActivationsEqualReference(*this, random, kRowShapes);
}

TEST_P(RowOpsTest, ActivationsAreFiniteWhereTheExponentialIsNot) {
  const std::vector<float> in = {0, 100, -100, 1e18f, -1e18f, 88.8f, -88.8f, -0.0f};
  for (const Activation activation : kAllActivations) {
    SCOPED_TRACE(static_cast<int>(activation));
    const bool squared = activation == Activation::kSquaredRelu;
    std::vector<float> out(8);
    kernels::Activate(One(), activation, in.data(), nullptr, 1, 8, out.data());
    EXPECT_EQ(out[1], squared ? 10000.0f : 100.0f);
    EXPECT_EQ(out[3], squared ? 1e18f * 1e18f : 1e18f);
    for (int i : {0, 2, 4, 6, 7}) EXPECT_NEAR(out[i], 0.0, 1e-35) << in[i];
  }
}

TEST_P(RowOpsTest, ActivationsKeepNaN) {
  const std::vector<float> in(17, kPoison);
  for (const Activation activation : kAllActivations) {
    std::vector<float> out(17, 0.0f);
    kernels::Activate(One(), activation, in.data(), nullptr, 1, 17, out.data());
    for (float value : out) EXPECT_TRUE(std::isnan(value)) << static_cast<int>(activation);
  }
}

TEST_P(RowOpsTest, ActivationsDoNotDependOnThePlaceInTheRow) {
  std::mt19937_64 random(34);
  const std::vector<float> x = RandomFloats(random, 70, 10.0f);
  for (const Activation activation : kAllActivations) {
    EXPECT_TRUE(
        RowsAreInvariant([&](std::span<const int32_t> rows) {  // in vector bodies and in tails
          std::vector<float> in, out(rows.size());
          for (int32_t row : rows) in.push_back(x[row]);
          kernels::Activate(Two(), activation, in.data(), in.data(), 1,
                            static_cast<int64_t>(in.size()), out.data());
          return out;
        }));
  }
}

TEST_P(RowOpsTest, ExchangeMovesBlocksBetweenTheRowsOfASequence) {
  std::mt19937_64 random(43);
  ExpectExchangeMovesBlocks(*this, random);
}

TEST_P(RowOpsTest, MixEqualsTheReference) {
  std::mt19937_64 random(38);
  ExpectMixEqualsReference(*this, random, kRowShapes, {1});
}

TEST_P(RowOpsTest, EmbedWidensRowsOfEveryDType) {
  std::mt19937_64 random(35);
  constexpr int64_t kVocab = 11, kDim = 37;
  const std::vector<float> bits = RandomFloats(random, kVocab * kDim);
  std::vector<int32_t> ids(1000);
  for (int32_t& id : ids) id = static_cast<int32_t>(RandomInt(random, 0, kVocab - 1));
  std::vector<float> out(ids.size() * kDim);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<float> table(bits.size());
    ConvertToFloat(bits.data(), dtype, 0, kVocab * kDim, table.data());
    kernels::Embed(Two(), {.table = bits.data(),
                           .dtype = dtype,
                           .ids = ids.data(),
                           .rows = static_cast<int64_t>(ids.size()),
                           .dim = kDim,
                           .accumulate = false,
                           .scale = 1,
                           .out = out.data()});
    for (size_t r = 0; r < ids.size(); ++r) {
      ASSERT_EQ(std::memcmp(&out[r * kDim], &table[ids[r] * kDim], kDim * sizeof(float)), 0)
          << "dtype " << static_cast<int>(dtype) << " row " << r;
    }
  }
}

TEST_P(RowOpsTest, EmbedScalesAccumulatesAndSkipsNegativeIds) {
  std::mt19937_64 random(39);
  ExpectEmbedScalesAccumulatesAndSkips(*this, random, 300);
}

TEST_P(RowOpsTest, GeluIsAccurateEverywhere) {
  std::mt19937_64 random(42);
  for (const float range : {0.01f, 1.0f, 7.0f, 1e30f}) {
    const std::vector<float> x = RandomFloats(random, 20003, range);
    std::vector<float> out(x.size());
    kernels::Activate(Two(), Activation::kGelu, x.data(), nullptr, 1, std::ssize(x), out.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = reference::Activate(Activation::kGelu, x[i]);
      ASSERT_NEAR(out[i], expected, 1.5e-7 * std::max(1.0, std::abs(double{x[i]}))) << x[i];
    }
  }
}

TEST_P(RowOpsTest, SoftCapEqualsTheReference) {
  std::mt19937_64 random(40);
  for (const float range : {0.01f, 6.0f, 40.0f, 3000.0f}) {
    std::vector<float> x = RandomFloats(random, 1003, range);
    std::vector<double> expected;
    for (float value : x) expected.push_back(30 * std::tanh(double{value} / 30));
    SoftCap(GetParam(), 30.0f, static_cast<int64_t>(x.size()), x.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(x[i], expected[i], 6e-7 * std::abs(expected[i])) << range;
    }
  }
}

TEST_P(RowOpsTest, NoRowsDoNothing) {
  kernels::RmsNorm(Two(), nullptr, nullptr, 1e-6f, 0, 8, nullptr);
  kernels::LayerNorm(Two(), nullptr, nullptr, nullptr, 1e-6f, 0, 8, nullptr);
  kernels::Activate(Two(), Activation::kGelu, nullptr, nullptr, 0, 8, nullptr);
  kernels::Mix(Two(), {.a = nullptr,
                       .a_weight = nullptr,
                       .b = nullptr,
                       .b_weight = nullptr,
                       .rows = 0,
                       .dim = 8,
                       .out = nullptr});
  kernels::Embed(Two(), {.table = nullptr,
                         .dtype = DType::kF32,
                         .ids = nullptr,
                         .rows = 0,
                         .dim = 8,
                         .accumulate = false,
                         .scale = 1,
                         .out = nullptr});
}

SLUICE_EVERY_F32_PROFILE(RowOpsTest);

}  // namespace
}  // namespace sluice::kernels
