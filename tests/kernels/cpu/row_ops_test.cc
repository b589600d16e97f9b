// Norms, activations, mixing and the embedding.
#include <cstring>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/mix.h"
#include "kernels/cpu/norm.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/norm.h"
#include "tests/kernels/cpu/op_test.h"
#include "tests/support/invariance.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kDims[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 100, 513, 4096};

class RowOpsTest : public OpTest {};

TEST_P(RowOpsTest, RmsNormEqualsTheReference) {
  std::mt19937_64 random(31);
  for (int64_t dim : kDims) {
    const int64_t rows = RandomInt(random, 1, 9);
    const float scale = dim % 2 == 0 ? 1e-3f : 3.0f;  // eps matters, or does not
    std::vector<float> x = RandomFloats(random, rows * dim, scale), out(x.size());
    const std::vector<float> weight = RandomFloats(random, dim);
    for (bool weighted : {true, false}) {
      RmsNorm(Two(), x.data(), weighted ? weight.data() : nullptr, 1e-5f, rows, dim, out.data());
      const std::vector<double> expected = reference::RmsNorm(
          Widen(x), weighted ? Widen(weight) : std::vector<double>{}, 1e-5f, dim);
      EXPECT_TRUE(Matches(Op::kNorm, out, expected)) << rows << " x " << dim;
    }
    RmsNorm(Two(), x.data(), nullptr, 1e-5f, rows, dim, x.data());
    EXPECT_EQ(x, out) << "in place, " << rows << " x " << dim;
  }
}

TEST_P(RowOpsTest, RmsNormOfZerosIsZero) {
  std::vector<float> x(10, 0.0f), out(10, kPoison);
  RmsNorm(One(), x.data(), nullptr, 1e-6f, 1, 10, out.data());
  EXPECT_EQ(out, x);
}

TEST_P(RowOpsTest, RmsNormRowsDoNotDependOnTheirBatch) {
  std::mt19937_64 random(32);
  for (int64_t dim : {33, 1000}) {
    const std::vector<float> x = RandomFloats(random, 70 * dim), weight = RandomFloats(random, dim);
    EXPECT_TRUE(RowsAreInvariant([&](std::span<const int32_t> rows) {
      std::vector<float> in, out(rows.size() * dim);
      for (int32_t row : rows) in.insert(in.end(), &x[row * dim], &x[row * dim] + dim);
      RmsNorm(Two(), in.data(), weight.data(), 1e-6f, static_cast<int64_t>(rows.size()), dim,
              out.data());
      return out;
    }));
  }
}

TEST_P(RowOpsTest, LayerNormEqualsTheReference) {
  std::mt19937_64 random(36);
  for (int64_t dim : kDims) {
    const int64_t rows = RandomInt(random, 1, 9);
    std::vector<float> x = RandomFloats(random, rows * dim), out(x.size());
    for (float& value : x) value += 5;  // a mean that would drown in a plain sum of squares
    const std::vector<float> weight = RandomFloats(random, dim), bias = RandomFloats(random, dim);
    for (bool affine : {true, false}) {
      LayerNorm(Two(), x.data(), affine ? weight.data() : nullptr, affine ? bias.data() : nullptr,
                1e-3f, rows, dim, out.data());
      const std::vector<double> expected =
          reference::LayerNorm(Widen(x), affine ? Widen(weight) : std::vector<double>{},
                               affine ? Widen(bias) : std::vector<double>{}, 1e-3f, dim);
      EXPECT_TRUE(Matches(Op::kLayerNorm, out, expected)) << rows << " x " << dim;
    }
    LayerNorm(Two(), x.data(), nullptr, nullptr, 1e-3f, rows, dim, x.data());
    EXPECT_EQ(x, out) << "in place, " << rows << " x " << dim;
  }
}

TEST_P(RowOpsTest, LayerNormRowsDoNotDependOnTheirBatch) {
  std::mt19937_64 random(37);
  for (int64_t dim : {33, 1000}) {
    const std::vector<float> x = RandomFloats(random, 70 * dim), weight = RandomFloats(random, dim);
    EXPECT_TRUE(RowsAreInvariant([&](std::span<const int32_t> rows) {
      std::vector<float> in, out(rows.size() * dim);
      for (int32_t row : rows) in.insert(in.end(), &x[row * dim], &x[row * dim] + dim);
      LayerNorm(Two(), in.data(), weight.data(), weight.data(), 1e-6f,
                static_cast<int64_t>(rows.size()), dim, out.data());
      return out;
    }));
  }
}

constexpr Activation kAllActivations[] = {Activation::kSilu, Activation::kGelu,
                                          Activation::kGeluTanh, Activation::kRelu,
                                          Activation::kSquaredRelu};

TEST_P(RowOpsTest, ActivationsEqualTheReference) {
  std::mt19937_64 random(33);
  for (const Activation activation : kAllActivations) {
    for (int64_t dim : kDims) {
      SCOPED_TRACE(::testing::Message()
                   << "activation " << static_cast<int>(activation) << " of " << dim);
      const int64_t rows = RandomInt(random, 1, 9);
      // The function bends near zero and hardly far from there.
      const float range = dim % 2 == 0 ? 20.0f : 1.0f;
      std::vector<float> in = RandomFloats(random, rows * dim, range);
      std::vector<float> up = RandomFloats(random, rows * dim), out(in.size());
      for (const bool gated : {true, false}) {
        std::vector<double> expected;
        for (size_t i = 0; i < in.size(); ++i) {
          expected.push_back(reference::Activate(activation, in[i]) * (gated ? up[i] : 1));
        }
        Activate(Two(), activation, in.data(), gated ? up.data() : nullptr, rows, dim, out.data());
        EXPECT_TRUE(Matches(Op::kActivation, out, expected));
      }
      Activate(Two(), activation, in.data(), nullptr, rows, dim, in.data());
      EXPECT_EQ(in, out) << "in place";
    }
  }
}

TEST_P(RowOpsTest, ActivationsAreFiniteWhereTheExponentialIsNot) {
  const std::vector<float> in = {0, 100, -100, 1e18f, -1e18f, 88.8f, -88.8f, -0.0f};
  for (const Activation activation : kAllActivations) {
    SCOPED_TRACE(static_cast<int>(activation));
    const bool squared = activation == Activation::kSquaredRelu;
    std::vector<float> out(8);
    Activate(One(), activation, in.data(), nullptr, 1, 8, out.data());
    EXPECT_EQ(out[1], squared ? 10000.0f : 100.0f);
    EXPECT_EQ(out[3], squared ? 1e18f * 1e18f : 1e18f);
    for (int i : {0, 2, 4, 6, 7}) EXPECT_NEAR(out[i], 0.0, 1e-35) << in[i];
  }
}

TEST_P(RowOpsTest, ActivationsKeepNaN) {
  const std::vector<float> in(17, kPoison);
  for (const Activation activation : kAllActivations) {
    std::vector<float> out(17, 0.0f);
    Activate(One(), activation, in.data(), nullptr, 1, 17, out.data());
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
          Activate(Two(), activation, in.data(), in.data(), 1, static_cast<int64_t>(in.size()),
                   out.data());
          return out;
        }));
  }
}

TEST_P(RowOpsTest, MixEqualsTheReference) {
  std::mt19937_64 random(38);
  for (int64_t dim : kDims) {
    const int64_t rows = RandomInt(random, 1, 9);
    const std::vector<float> a = RandomFloats(random, rows * dim),
                             b = RandomFloats(random, a.size());
    const std::vector<float> a_weight = RandomFloats(random, dim),
                             b_weight = RandomFloats(random, dim);
    for (int kind = 0; kind < 8; ++kind) {
      const bool with_a = (kind & 1) != 0, with_b = (kind & 2) != 0, weigh_b = (kind & 4) != 0;
      std::vector<double> expected;
      for (size_t i = 0; i < a.size(); ++i) {
        expected.push_back(double{a[i]} * (with_a ? a_weight[i % dim] : 1) +
                           (with_b ? double{b[i]} * (weigh_b ? b_weight[i % dim] : 1) : 0));
      }
      std::vector<float> out = a;  // in place
      Mix(Two(), {.a = out.data(),
                  .a_weight = with_a ? a_weight.data() : nullptr,
                  .b = with_b ? b.data() : nullptr,
                  .b_weight = weigh_b ? b_weight.data() : nullptr,
                  .rows = rows,
                  .dim = dim,
                  .out = out.data()});
      EXPECT_TRUE(Matches(Op::kMix, out, expected)) << dim << " kind " << kind;
    }
  }
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
    Embed(Two(), {.table = bits.data(),
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
  constexpr int64_t kDim = 300;
  const std::vector<float> table = RandomFloats(random, 5 * kDim);
  const std::vector<int32_t> ids = {4, -1, 0, 2};
  for (const bool accumulate : {false, true}) {
    for (const int32_t* indices : {ids.data(), static_cast<const int32_t*>(nullptr)}) {
      std::vector<float> out = RandomFloats(random, 4 * kDim);
      const std::vector<float> before = out;
      Embed(Two(), {.table = table.data(),
                    .dtype = DType::kF32,
                    .ids = indices,
                    .rows = 4,
                    .dim = kDim,
                    .accumulate = accumulate,
                    .scale = 2.5f,
                    .out = out.data()});
      for (int64_t i = 0; i < 4 * kDim; ++i) {
        const int32_t id = indices == nullptr ? 0 : ids[i / kDim];
        const float base = accumulate || id < 0 ? before[i] : 0.0f;
        const float added = id < 0 ? 0.0f : 2.5f * table[id * kDim + i % kDim];
        ASSERT_EQ(out[i], base + added) << i;
      }
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
  RmsNorm(Two(), nullptr, nullptr, 1e-6f, 0, 8, nullptr);
  LayerNorm(Two(), nullptr, nullptr, nullptr, 1e-6f, 0, 8, nullptr);
  Activate(Two(), Activation::kGelu, nullptr, nullptr, 0, 8, nullptr);
  Mix(Two(), {.a = nullptr,
              .a_weight = nullptr,
              .b = nullptr,
              .b_weight = nullptr,
              .rows = 0,
              .dim = 8,
              .out = nullptr});
  Embed(Two(), {.table = nullptr,
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
