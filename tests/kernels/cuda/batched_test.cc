#include "kernels/cuda/batched.h"

#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

class BatchedTest : public OpTest {
 protected:
  // Captures `launch` once; then `step` prepares, runs and checks 100 sizes.
  template <typename Launch, typename Step>
  void OverSizes(Launch launch, Step step) {
    lab_.stream().BeginCapture();
    launch();
    auto graph = lab_.stream().EndCapture().value();
    for (int32_t trial = 0; trial < 100; ++trial) {
      SCOPED_TRACE(testing::Message() << "trial " << trial << ", seed " << kSeed);
      step([&] { lab_.stream().Run(*graph); });
    }
    EXPECT_EQ(lab_.device().captures(), 1);
  }
};

TEST_F(BatchedTest, MatMulEqualsTheReferenceForAllSizesOfOneCapture) {
  constexpr int32_t kMax = 12, kMaxElements = kMax * kMax * kMax;
  auto* sizes = lab_.Room<MatMulSizes>(1);
  auto *a = lab_.Room<float>(kMaxElements), *b = lab_.Room<float>(kMaxElements);
  auto* out = lab_.Room<float>(kMaxElements);
  const MatMulArgs args = {a, b, sizes, kMaxElements, out};
  OverSizes([&] { BatchedMatMul(lab_.stream(), args); },
            [&](const auto& run) {
              const MatMulSizes s = {RandomInt(random_, 1, kMax), RandomInt(random_, 1, kMax),
                                     RandomInt(random_, 1, kMax), RandomInt(random_, 1, kMax)};
              ASSERT_TRUE(Accepts(args, s));
              const auto x = RandomValues<float>(random_, s.batch * s.m * s.k);
              const auto y = RandomValues<float>(random_, s.batch * s.k * s.n);
              lab_.Write<MatMulSizes>(sizes, std::vector<MatMulSizes>{s});
              lab_.Write<float>(a, x);
              lab_.Write<float>(b, y);
              run();
              std::vector<double> expected(s.batch * s.m * s.n);
              for (int32_t i = 0; i < s.batch * s.m; ++i) {
                for (int32_t j = 0; j < s.n; ++j) {
                  for (int32_t k = 0; k < s.k; ++k) {
                    expected[i * s.n + j] +=
                        double{x[i * s.k + k]} * y[(i / s.m * s.k + k) * s.n + j];
                  }
                }
              }
              EXPECT_TRUE(Matches(Op::kGemm, lab_.Get(out, expected.size()), expected));
            });
}

TEST_F(BatchedTest, CholeskyTimesItsTransposeIsTheMatrixForAllSizesOfOneCapture) {
  constexpr int32_t kMaxN = 20, kMaxBatch = 10, kMaxElements = kMaxBatch * kMaxN * kMaxN;
  auto* sizes = lab_.Room<CholeskySizes>(1);
  auto *a = lab_.Room<float>(kMaxElements), *out = lab_.Room<float>(kMaxElements);
  const CholeskyArgs args = {a, sizes, kMaxBatch, out};
  OverSizes(
      [&] { Cholesky(lab_.stream(), args); },
      [&](const auto& run) {
        const CholeskySizes s = {RandomInt(random_, 1, kMaxBatch), RandomInt(random_, 1, kMaxN)};
        ASSERT_TRUE(Accepts(args, s));
        const auto product = [&](const std::vector<float>& l) {  // l l^T
          std::vector<double> full(l.size());
          for (int32_t i = 0; i < s.batch * s.n; ++i) {
            for (int32_t j = 0; j < s.n; ++j) {
              for (int32_t k = 0; k < s.n; ++k) {
                full[i * s.n + j] += double{l[i * s.n + k]} * l[(i / s.n * s.n + j) * s.n + k];
              }
            }
          }
          return full;
        };
        const auto root = RandomValues<float>(random_, s.batch * s.n * s.n);
        const std::vector<double> squares = product(root);
        std::vector<float> spd(squares.begin(), squares.end());
        for (int32_t m = 0; m < s.batch; ++m) {  // well conditioned
          for (int32_t i = 0; i < s.n; ++i) spd[(m * s.n + i) * s.n + i] += 1;
        }
        lab_.Write<CholeskySizes>(sizes, std::vector<CholeskySizes>{s});
        lab_.Write<float>(a, spd);
        run();
        const auto l = lab_.Get(out, spd.size());
        for (int32_t i = 0; i < s.batch * s.n; ++i) {
          for (int32_t j = i % s.n + 1; j < s.n; ++j) EXPECT_EQ(l[i * s.n + j], 0);
        }
        EXPECT_TRUE(Within(1e-5, product(l), ToDouble(spd)));
      });
}

TEST_F(BatchedTest, CholeskyOfAMatrixThatIsNotPositiveDefiniteIsNaN) {
  float* out = lab_.Room<float>(4);
  Cholesky(lab_.stream(),
           {lab_.Put<float>({1, 2, 2, 1}), lab_.Put<CholeskySizes>({{1, 2}}), 1, out});
  const auto l = lab_.Get(out, 4);
  EXPECT_EQ(l[0], 1);
  EXPECT_TRUE(std::isnan(l[3]));
}

TEST(BatchedGuardTest, AcceptsSizesWithinTheCapacity) {
  const MatMulArgs product = {
      .a = nullptr, .b = nullptr, .sizes = nullptr, .max_elements = 24, .out = nullptr};
  EXPECT_TRUE(Accepts(product, {2, 3, 4, 1 << 30}));
  EXPECT_FALSE(Accepts(product, {3, 3, 4, 1}));
  EXPECT_FALSE(Accepts(product, {1 << 30, 1 << 30, 1 << 30, 1}));  // 2^90 elements
  for (const MatMulSizes& empty : {MatMulSizes{0, 1, 1, 1}, MatMulSizes{1, 0, 1, 1},
                                   MatMulSizes{1, 1, 0, 1}, MatMulSizes{1, 1, 1, 0}}) {
    EXPECT_FALSE(Accepts(product, empty));
  }
  const CholeskyArgs root = {.a = nullptr, .sizes = nullptr, .max_batch = 2, .out = nullptr};
  EXPECT_TRUE(Accepts(root, {2, 9}));
  for (const CholeskySizes& bad : {CholeskySizes{3, 9}, CholeskySizes{0, 9}, CholeskySizes{2, 0}}) {
    EXPECT_FALSE(Accepts(root, bad));
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
