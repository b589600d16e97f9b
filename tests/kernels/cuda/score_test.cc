#include "kernels/cuda/score.h"

#include "kernels/reference/activation.h"
#include "kernels/reference/sample.h"
#include "tests/kernels/cuda/op_test.h"
#include "tests/kernels/cuda/packed_weights.h"

namespace sluice::kernels::cuda {
namespace {

// A head and the rows that are scored with it.
template <typename T>
struct Head {
  int32_t rows = 0, k = 0, n = 0;
  float soft_cap = 0;
  std::vector<T> x{}, weight{}, bias{};  // [rows, k], [k, n], [n] or empty
  std::vector<int32_t> targets{};
  int32_t stride_beyond = 0;

  // Returns the logits of row `r` in double.
  std::vector<double> Logits(int32_t r) const {
    std::vector<double> logits(n);
    for (int32_t j = 0; j < n; ++j) {
      double z = bias.empty() ? 0 : Widen(bias[j]);
      for (int32_t i = 0; i < k; ++i) z += double{Widen(x[r * k + i])} * Widen(weight[i * n + j]);
      logits[j] = soft_cap == 0 ? z : soft_cap * std::tanh(z / soft_cap);
    }
    return logits;
  }
  Head Row(int32_t r) const {
    Head row = *this;
    row.rows = 1;
    row.x.assign(x.begin() + r * k, x.begin() + (r + 1) * k);
    row.targets = {targets[r]};
    return row;
  }
};

template <typename T>
class ScoreTest : public OpTest {
 protected:
  Head<T> RandomHead(int32_t rows, int32_t k, int32_t n, bool bias, float soft_cap) {
    Head<T> head = {.rows = rows, .k = k, .n = n, .soft_cap = soft_cap};
    head.x = RandomValues<T>(random_, int64_t{rows} * k, 1.0f);
    head.weight = RandomValues<T>(random_, int64_t{k} * n, 1.0f);
    if (bias) head.bias = RandomValues<T>(random_, n, 2.0f);
    for (int32_t r = 0; r < rows; ++r) head.targets.push_back(RandomInt(random_, 0, n - 1));
    return head;
  }

  std::vector<SampleOutcome> Run(const Head<T>& head, int32_t processors = kManyProcessors) {
    StreamOfProcessors stream(lab_.stream(), processors);
    std::vector<SampleRequest> requests;
    for (const int32_t target : head.targets)
      requests.push_back({.params = {}, .target = target, .num_top = 0});
    const RowGroup all = {0, 0, head.rows};
    std::vector<RowGroup> tiles(MaxRowTiles(head.rows, 1));
    const int32_t count = CutIntoRowTiles({&all, 1}, tiles.data());
    constexpr int32_t kFirst = 5;
    auto* const outcomes = lab_.template Room<SampleOutcome>(kFirst + head.rows);
    // Columns after the head's columns are never counted.
    const int32_t stride = head.n + head.stride_beyond;
    std::vector<T> weight(int64_t{head.k} * stride, Narrow<T>(NAN));
    for (int32_t i = 0; i < head.k; ++i) {
      std::copy_n(head.weight.begin() + i * head.n, head.n, weight.begin() + i * stride);
    }
    Score<T>(stream,
             {.x = lab_.Put(head.x),
              .weight = lab_.Put(Packed(weight, 1, head.k, stride)),
              .bias = head.bias.empty() ? nullptr : lab_.Put(head.bias),
              .k = head.k,
              .n = head.n,
              .soft_cap = head.soft_cap,
              .tiles = {lab_.Put(tiles), lab_.Put(std::vector<int32_t>{count}), count, true},
              .requests = lab_.Put(requests),
              .rows = Live(head.rows),
              .parts = lab_.template Room<ScorePart>(ScoreParts(head.rows, head.n)),
              .target_logits = lab_.template Room<float>(head.rows),
              .first = lab_.Put(std::vector<int32_t>{kFirst}),
              .outcomes = outcomes});
    std::vector<SampleOutcome> result = lab_.Get(outcomes + kFirst, head.rows);
    lab_.Clear();
    return result;
  }
};

using Types = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(ScoreTest, Types);

// Sizes that end within a block of columns, within a step of k, and beyond one tile of rows.
TYPED_TEST(ScoreTest, ScoresLikeTheReference) {
  struct Size {
    int32_t rows, k, n;
  };
  for (const Size size : {Size{1, 1, 1}, {3, 40, 63}, {66, 33, 130}, {5, 64, 1000}, {2, 7, 129}}) {
    for (const float soft_cap : {0.0f, 3.0f}) {
      Head<TypeParam> head = this->RandomHead(size.rows, size.k, size.n, soft_cap != 0, soft_cap);
      if (soft_cap != 0) head.stride_beyond = 7 - (size.n + 7) % 8;
      const std::vector<SampleOutcome> outcomes = this->Run(head);
      for (int32_t r = 0; r < size.rows; ++r) {
        const int32_t target = head.targets[r];
        EXPECT_EQ(outcomes[r].token, target);
        EXPECT_NEAR(outcomes[r].logprob, reference::LogSoftmax(head.Logits(r))[target], 2e-5)
            << "row " << r << " of " << size.rows << " x " << size.k << " x " << size.n << ", seed "
            << this->kSeed;
      }
    }
  }
}

TYPED_TEST(ScoreTest, ARowsScoreDoesNotDependOnItsBatch) {
  const Head<TypeParam> head = this->RandomHead(70, 64, 200, true, 0);
  const std::vector<SampleOutcome> together = this->Run(head);
  EXPECT_TRUE(SameBits(this->Run(head, kFewProcessors), together)) << "by large tiles";
  for (int32_t r = 0; r < head.rows; r += 13) {
    EXPECT_TRUE(SameBits(this->Run(head.Row(r)), {together[r]})) << "row " << r;
  }
}

// A bias of -inf excludes a token, as a mask does. A whole block of such tokens is allowed.
TYPED_TEST(ScoreTest, OnlyRowsThatAreNotFiniteHaveNoToken) {
  Head<TypeParam> head = this->RandomHead(5, 16, 200, true, 0);
  for (int32_t j = 60; j < 140; ++j) head.bias[j] = Narrow<TypeParam>(-kInfinity);
  head.targets = {3, 199, 70, 3, 3};
  head.x[3 * head.k] = Narrow<TypeParam>(kPoison);
  head.x[4 * head.k + 1] = Narrow<TypeParam>(kInfinity);
  const std::vector<SampleOutcome> outcomes = this->Run(head);
  for (int32_t r = 0; r < 2; ++r) {
    EXPECT_NEAR(outcomes[r].logprob, reference::LogSoftmax(head.Logits(r))[head.targets[r]], 1e-5);
  }
  EXPECT_EQ(outcomes[2].token, 70);
  EXPECT_EQ(outcomes[2].logprob, -kInfinity);
  for (int32_t r = 3; r < 5; ++r) {
    EXPECT_EQ(outcomes[r].token, -1) << "row " << r;
    EXPECT_TRUE(std::isnan(outcomes[r].logprob)) << "row " << r;
  }
  head.bias.assign(head.n, Narrow<TypeParam>(-kInfinity));
  EXPECT_EQ(this->Run(head)[0].token, -1) << "without any finite logit";
}

}  // namespace
}  // namespace sluice::kernels::cuda
