#include "kernels/cpu/head.h"

#include <bit>
#include <memory>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/sample.h"
#include "tests/kernels/cpu/op_test.h"
#include "tests/support/random_edits.h"

namespace sluice::kernels {
namespace {

constexpr std::byte kStale{0xFF};  // NaN as a float, -1 as an integer

struct Answer {
  double log_sum;
  float target_logit;
  std::vector<int32_t> ids;
  std::vector<float> logits;

  bool operator==(const Answer&) const = default;
};

// A head of random weights, and functions to compute its full rows of logits.
class HeadTest : public OpTest {
 protected:
  void Make(std::mt19937_64& random, int64_t k, int64_t n, DType dtype, float soft_cap) {
    k_ = k;
    n_ = n;
    weights_ = RandomFloats(random, k * n);
    bias_ = RandomFloats(random, n, 0.5f);
    x_ = RandomFloats(random, kHeadRows * k, 2.0f / std::sqrt(static_cast<float>(k)));
    soft_cap_ = soft_cap;
    std::vector<uint16_t> narrow;
    for (const float w : weights_) {
      narrow.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(w) >> 16));
    }
    const void* const data = dtype == DType::kBF16 ? static_cast<const void*>(narrow.data())
                                                   : static_cast<const void*>(weights_.data());
    packed_ = PackedWeights::Pack(One(), {data, dtype, 1, k, n, false});
  }

  // Returns the logits, computed with the separate ops that the head replaces.
  std::vector<float> Logits(int64_t row, std::span<const int32_t> excluded) {
    std::vector<float> logits(static_cast<size_t>(n_));
    Gemm(One(), packed_, 1,
         {.x = x_.data() + row * k_,
          .ldx = k_,
          .bias = bias_.data(),
          .bias_stride = 0,
          .out = logits.data(),
          .ldo = n_,
          .accumulate = false});
    if (soft_cap_ != 0) SoftCap(GetParam(), soft_cap_, n_, logits.data());
    for (const int32_t token : excluded) logits[static_cast<size_t>(token)] = -kInfinity;
    return logits;
  }

  Answer Expected(const std::vector<float>& logits, const HeadRow& row) {
    Answer answer = {LogSumExp(GetParam(), logits.data(), n_), 0, {}, {}};
    if (row.target >= 0) answer.target_logit = logits[static_cast<size_t>(row.target)];
    if (row.best == 0) return answer;
    answer.ids.resize(static_cast<size_t>(row.best));
    answer.logits.resize(static_cast<size_t>(row.best));
    std::vector<uint64_t> scratch(static_cast<size_t>(TopKScratch(n_, row.best)));
    TopK(GetParam(), logits.data(), n_, row.best, answer.logits.data(), answer.ids.data(),
         scratch.data());
    return answer;
  }

  // Runs the head for rows [first, first + rows.size()) of x.
  std::vector<Answer> Run(const Context& context, int64_t first, std::span<const HeadRow> rows) {
    std::vector<std::byte> scratch(
        static_cast<size_t>(HeadScratch(n_, context.pool->threads())) + kLine, kStale);
    void* aligned = scratch.data();
    size_t space = scratch.size();
    std::align(kLine, space - kLine, aligned, space);
    std::vector<HeadResult> results(rows.size());
    Head(context, packed_,
         {.x = x_.data() + first * k_, .bias = bias_.data(), .soft_cap = soft_cap_}, rows,
         static_cast<std::byte*>(aligned), results.data());
    std::vector<Answer> answers;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].logits != nullptr) {
        answers.emplace_back();
        continue;
      }
      const HeadResult& result = results[i];
      answers.push_back({result.log_sum,
                         rows[i].target >= 0 ? result.target_logit : 0,
                         {result.best_ids, result.best_ids + rows[i].best},
                         {result.best_logits, result.best_logits + rows[i].best}});
    }
    return answers;
  }

  static constexpr size_t kLine = 64;
  int64_t k_ = 0, n_ = 0;
  float soft_cap_ = 0;
  std::vector<float> weights_, bias_, x_;
  PackedWeights packed_;
};

TEST_P(HeadTest, ResultsEqualTheFullRowsOfLogits) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const int64_t sizes[] = {1, 2, 61, 511, 512, 513, 1024, 1025, 2600, RandomInt(random, 3, 5000)};
    Make(random, RandomInt(random, 1, 70), sizes[seed % std::size(sizes)],
         seed % 2 == 0 ? DType::kBF16 : DType::kF32, seed % 3 == 0 ? 1.5f : 0.0f);
    const auto count = static_cast<size_t>(RandomInt(random, 1, kHeadRows));
    std::vector<HeadRow> rows(count);
    std::vector<std::vector<int32_t>> excluded(count);
    std::vector<std::vector<float>> written(count);
    for (size_t i = 0; i < count; ++i) {
      HeadRow& row = rows[i];
      if (RandomInt(random, 0, 2) == 0) {  // no, some, or nearly all tokens
        excluded[i] = DistinctTokens(random, n_, RandomInt(random, 0, n_ - 1));
        row.excluded = excluded[i];
      }
      if (RandomInt(random, 0, 2) == 0) row.target = static_cast<int32_t>(random() % n_);
      const int64_t bests[] = {0, 1, 1, RandomInt(random, 1, kMaxBest), kMaxBest};
      row.best = std::min(bests[random() % std::size(bests)], n_);
      if (RandomInt(random, 0, 9) == 0) {
        written[i].assign(static_cast<size_t>(n_), kPoison);
        row.logits = written[i].data();
      }
    }
    const std::vector<Answer> answers = Run(Two(), 0, rows);
    for (size_t i = 0; i < count; ++i) {
      SCOPED_TRACE(testing::Message() << "row " << i << " of " << n_ << " columns");
      const std::vector<float> logits = Logits(static_cast<int64_t>(i), excluded[i]);
      if (rows[i].logits != nullptr) {
        ASSERT_EQ(written[i], logits);
        continue;
      }
      ASSERT_EQ(answers[i], Expected(logits, rows[i]));
      if (i % 16 == 0) {
        ASSERT_EQ(Run(One(), static_cast<int64_t>(i), {&rows[i], 1})[0], answers[i]) << "alone";
      }
    }
  }
}

TEST_P(HeadTest, EqualLogitsAreOrderedByToken) {
  std::mt19937_64 random(91);
  Make(random, 4, 3000, DType::kF32, 0);
  std::fill(weights_.begin(), weights_.end(), 0.0f);
  packed_ = PackedWeights::Pack(One(), {weights_.data(), DType::kF32, 1, k_, n_, false});
  for (float& b : bias_) b = static_cast<float>(random() % 3);
  std::vector<HeadRow> rows;
  for (const int64_t best : {1, 2, 33, 64}) rows.push_back({.best = best});
  const std::vector<Answer> answers = Run(Two(), 0, rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(answers[i], Expected(Logits(0, {}), rows[i])) << rows[i].best;
  }
}

TEST_P(HeadTest, LogitsThatAreNotFiniteShowInTheLogSum) {
  std::mt19937_64 random(92);
  const float bad[] = {kPoison, kInfinity, -kInfinity};
  for (const float value : bad) {
    Make(random, 3, 1300, DType::kF32, 0);
    const bool finite = value < 0;
    bias_[1200] = value;
    const HeadRow row = {.target = 7, .best = 3};
    const Answer answer = Run(Two(), 0, {&row, 1})[0];
    EXPECT_EQ(std::isfinite(answer.log_sum), finite) << value;
    if (finite) {
      EXPECT_EQ(answer, Expected(Logits(0, {}), row));
    }
  }
  std::fill(bias_.begin(), bias_.end(), -kInfinity);
  const HeadRow row = {.best = 1};
  EXPECT_EQ(Run(Two(), 0, {&row, 1})[0].log_sum, -kInfinity);
}

// A draw that examines few candidates finds the same token as a draw from the whole row.
TEST_P(HeadTest, CandidatesAreDrawnLikeTokensOfTheWholeRow) {
  std::mt19937_64 random(93);
  for (const int64_t n : {1, 5, 40, 1500}) {
    const std::vector<float> logits = RandomFloats(random, n, 4.0f);
    std::vector<uint64_t> scratch(static_cast<size_t>(SampleScratch(n)));
    for (int trial = 0; trial < 400; ++trial) {
      SampleParams params = {.temperature = trial % 5 == 0 ? 0.0f : 0.1f * (trial % 20 + 1),
                             .top_k = static_cast<int32_t>(RandomInt(random, 0, 60)),
                             .top_p = trial % 2 == 0 ? 1.0f : 0.05f * (trial % 19 + 1),
                             .min_p = trial % 3 == 0 ? 0.3f : 0.0f,
                             .seed = random()};
      const int64_t k = CandidatesToDraw(params, n);
      if (k == 0) {
        EXPECT_TRUE(params.temperature > 0 && (params.top_k == 0 || params.top_k >= n));
        continue;
      }
      std::vector<int32_t> ids(static_cast<size_t>(k));
      std::vector<float> best(ids.size()), weights(ids.size());
      TopK(GetParam(), logits.data(), n, k, best.data(), ids.data(), scratch.data());
      std::vector<float> row = logits;
      const SampleResult expected =
          Sample(GetParam(), params, {row.data(), n, 0, nullptr, nullptr}, scratch.data());
      const int64_t place = SampleCandidates(GetParam(), params, best.data(), k, n, weights.data());
      ASSERT_EQ(ids[static_cast<size_t>(place)], expected.token) << "n " << n << " trial " << trial;
    }
  }
}

SLUICE_EVERY_PROFILE(HeadTest);

}  // namespace
}  // namespace sluice::kernels
