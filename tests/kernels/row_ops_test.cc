// RMSNorm, SwiGLU and the embedding.
#include <cstring>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/norm.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/norm.h"
#include "tests/kernels/op_test.h"
#include "tests/support/invariance.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kDims[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 100, 513, 4096};

class RowOpsTest : public OpTest {};

TEST_P(RowOpsTest, RmsNormEqualsTheReference) {
  std::mt19937_64 random(31);
  for (int64_t dim : kDims) {
    const int64_t rows = RandomInt(random, 1, 9);
    const float scale = dim % 2 == 0 ? 1e-3f : 3.0f;  // eps decides, or does not
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

TEST_P(RowOpsTest, SwiGluEqualsTheReference) {
  std::mt19937_64 random(33);
  for (int64_t dim : kDims) {
    const int64_t rows = RandomInt(random, 1, 9);
    std::vector<float> gate = RandomFloats(random, rows * dim, 20.0f);
    std::vector<float> up = RandomFloats(random, rows * dim), out(gate.size());
    SwiGlu(Two(), gate.data(), up.data(), rows, dim, out.data());
    EXPECT_TRUE(Matches(Op::kSwiGlu, out, reference::SwiGlu(Widen(gate), Widen(up)))) << dim;
    SwiGlu(Two(), gate.data(), up.data(), rows, dim, gate.data());
    EXPECT_EQ(gate, out) << "in place";
  }
}

TEST_P(RowOpsTest, SwiGluIsFiniteWhereTheExponentialIsNot) {
  const std::vector<float> gate = {0, 100, -100, 1e30f, -1e30f, 88.8f, -88.8f, -0.0f}, up(8, 1.0f);
  std::vector<float> out(8);
  SwiGlu(One(), gate.data(), up.data(), 1, 8, out.data());
  EXPECT_EQ(out[1], 100.0f);
  EXPECT_EQ(out[3], 1e30f);
  for (int i : {0, 2, 4, 6, 7}) EXPECT_NEAR(out[i], 0.0, 1e-35) << gate[i];
}

TEST_P(RowOpsTest, SwiGluElementsDoNotDependOnTheirPlace) {
  std::mt19937_64 random(34);
  const std::vector<float> x = RandomFloats(random, 70, 10.0f);
  EXPECT_TRUE(
      RowsAreInvariant([&](std::span<const int32_t> rows) {  // in vector bodies and in tails
        std::vector<float> in, out(rows.size());
        for (int32_t row : rows) in.push_back(x[row]);
        SwiGlu(Two(), in.data(), in.data(), 1, static_cast<int64_t>(in.size()), out.data());
        return out;
      }));
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
    Embed(Two(), bits.data(), dtype, ids.data(), static_cast<int64_t>(ids.size()), kDim,
          out.data());
    for (size_t r = 0; r < ids.size(); ++r) {
      ASSERT_EQ(std::memcmp(&out[r * kDim], &table[ids[r] * kDim], kDim * sizeof(float)), 0)
          << "dtype " << static_cast<int>(dtype) << " row " << r;
    }
  }
}

TEST_P(RowOpsTest, NoRowsDoNothing) {
  RmsNorm(Two(), nullptr, nullptr, 1e-6f, 0, 8, nullptr);
  SwiGlu(Two(), nullptr, nullptr, 0, 8, nullptr);
  Embed(Two(), nullptr, DType::kF32, nullptr, 0, 8, nullptr);
}

SLUICE_EVERY_PROFILE(RowOpsTest);

}  // namespace
}  // namespace sluice::kernels
