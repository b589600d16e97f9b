#include "kernels/cuda/diverse.h"

#include "kernels/choose_diverse.h"
#include "tests/kernels/common/diverse_bodies.h"
#include "tests/kernels/cuda/op_test.h"
#include "tests/kernels/cuda/packed_weights.h"

namespace sluice::kernels::cuda {
namespace {

template <typename T>
class DiversifyTest : public OpTest {
 protected:
  static constexpr int32_t kTop = kMaxDiversePool + 3;
  static constexpr int32_t kMostRows = 3, kMostWidth = 96;

  struct Lists {
    std::vector<int32_t> ids;
    std::vector<float> logprobs, scores;
  };

  // Captures the op once for matrices of `width`.
  void Capture(int32_t width, bool packed) {
    width_ = width;
    packed_ = packed;
    const int64_t elements =
        packed ? PackedElements<T>(1, width, kColumns) : int64_t{width} * kColumns;
    weight_ = lab_.template Room<T>(elements);
    count_ = lab_.template Room<int32_t>(1);
    outcomes_ = lab_.template Room<SampleOutcome>(kFirst + kMostRows);
    requests_ = lab_.template Room<DiverseRequest>(kMostRows);
    ids_ = lab_.template Room<int32_t>(kMostRows * kTop);
    logprobs_ = lab_.template Room<float>(kMostRows * kTop);
    scores_ = lab_.template Room<float>(kMostRows * kTop);
    const DiverseArgs<T> args = {
        .weight = weight_,
        .packed = packed,
        .k = width,
        .columns = kColumns,
        .requests = requests_,
        .rows = {count_, kMostRows},
        .first = lab_.template Put<int32_t>({kFirst}),
        .outcomes = outcomes_,
        .max_top = kTop,
        .factors = lab_.template Room<double>(kMostRows * DiverseFactor(kTop)),
        .top_ids = ids_,
        .top_logprobs = logprobs_,
        .top_scores = scores_};
    lab_.stream().BeginCapture();
    Diversify(lab_.stream(), args);
    graph_ = lab_.stream().EndCapture().value();
  }

  // Runs the captured op for a case among rows of other sizes, and returns the indices of the
  // chosen candidates in the case.
  std::vector<int32_t> Run(const DiverseCase& of) {
    std::vector<int32_t> columns(kColumns);
    std::iota(columns.begin(), columns.end(), 0);
    std::shuffle(columns.begin(), columns.end(), random_);
    std::vector<T> weight(int64_t{width_} * kColumns, Narrow<T>(0));
    for (int32_t i = 0; i < of.pool(); ++i) {
      for (int32_t d = 0; d < of.width; ++d) {
        weight[d * kColumns + columns[i]] = Narrow<T>(of.vectors[i * of.width + d]);
      }
    }
    if (packed_) weight = Packed(weight, 1, width_, kColumns);
    lab_.template Write<T>(weight_, weight);
    const int32_t rows = RandomInt(random_, 1, kMostRows), row = RandomInt(random_, 0, rows - 1);
    // The other rows request nothing or have no token. A row without a token may have a request.
    std::vector<DiverseRequest> requests(rows);
    std::vector<SampleOutcome> outcomes(kFirst + rows, {-1, NAN});
    if (row > 0) requests[0] = {0.5f, of.pool(), of.count};
    requests[row] = {of.diversity, of.pool(), of.count};
    outcomes[kFirst + row] = {7, -1.0f};
    lab_.template Write<SampleOutcome>(outcomes_, outcomes);
    EXPECT_TRUE(Accepts(kTop, requests[row]));
    std::vector<int32_t> ids(rows * kTop, 5);
    std::vector<float> logprobs(rows * kTop, -1.0f), scores(rows * kTop, 3.0f);
    for (int32_t i = 0; i < of.pool(); ++i) {
      ids[row * kTop + i] = columns[i];
      scores[row * kTop + i] = of.scores[i];
      logprobs[row * kTop + i] = of.scores[i] - 1;
    }
    const Lists before = {ids, logprobs, scores};
    lab_.template Write<int32_t>(count_, std::vector<int32_t>{rows});
    lab_.template Write<DiverseRequest>(requests_, requests);
    lab_.template Write<int32_t>(ids_, ids);
    lab_.template Write<float>(logprobs_, logprobs);
    lab_.template Write<float>(scores_, scores);
    lab_.stream().Run(*graph_);
    return Places(of, columns, before, rows, row);
  }

  std::vector<std::vector<int32_t>> RunAll(const std::vector<DiverseCase>& cases) {
    std::vector<std::vector<int32_t>> chosen;
    for (const DiverseCase& of : cases) chosen.push_back(Run(of));
    return chosen;
  }

 private:
  static constexpr int32_t kColumns = 640, kFirst = 2;

  std::vector<int32_t> Places(const DiverseCase& of, const std::vector<int32_t>& columns,
                              const Lists& before, int32_t rows, int32_t row) {
    const Lists after = {lab_.Get(ids_, rows * kTop), lab_.Get(logprobs_, rows * kTop),
                         lab_.Get(scores_, rows * kTop)};
    std::vector<int32_t> places;
    for (int32_t i = 0; i < of.count; ++i) {
      const int32_t at = row * kTop + i;
      const auto found = std::find(columns.begin(), columns.begin() + of.pool(), after.ids[at]);
      places.push_back(static_cast<int32_t>(found - columns.begin()));
      EXPECT_EQ(after.scores[at], of.scores[places.back()]);
      EXPECT_EQ(after.logprobs[at], of.scores[places.back()] - 1);
    }
    for (int32_t r = 0; r < rows; ++r) {
      const auto begin = before.ids.begin() + r * kTop;
      const bool same = std::equal(begin, begin + kTop, after.ids.begin() + r * kTop);
      EXPECT_TRUE(r == row || same) << "row " << r << " of others";
    }
    return places;
  }

  int32_t width_ = 0;
  bool packed_ = false;
  T* weight_ = nullptr;
  int32_t* count_ = nullptr;
  SampleOutcome* outcomes_ = nullptr;
  DiverseRequest* requests_ = nullptr;
  int32_t* ids_ = nullptr;
  float *logprobs_ = nullptr, *scores_ = nullptr;
  std::unique_ptr<DeviceGraph> graph_;
};

TYPED_TEST_SUITE(DiversifyTest, DTypes);

// 92 cases of other sizes run in one capture.
TYPED_TEST(DiversifyTest, ChoicesOfOneCaptureEqualTheReference) {
  for (const bool packed : {false, true}) {
    SCOPED_TRACE(testing::Message() << "packed " << packed << ", seed " << this->kSeed);
    this->Capture(this->kMostWidth, packed);
    const int64_t captures = this->lab_.device().captures();
    const auto run = [this](const std::vector<DiverseCase>& cases) { return this->RunAll(cases); };
    ExpectDiverseChoicesEqualReference(run, this->random_);
    ExpectNoDiversityKeepsTheOrder(run, this->random_);
    ExpectTheLikeOfAChoiceComesLast(run);
    EXPECT_EQ(this->lab_.device().captures(), captures);
  }
}

TYPED_TEST(DiversifyTest, TheLargestListEqualsTheCpu) {
  this->Capture(this->kMostWidth, /*packed=*/true);
  const DiverseCase of =
      RandomDiverseCase(this->random_, kMaxDiversePool, this->kMostWidth, 0.7f, kMaxDiverse);
  std::vector<int32_t> expected(of.count);
  std::vector<double> scratch(DiverseScratch(of.pool(), of.count));
  ChooseDiverse(
      of.scores, of.diversity,
      [&](int64_t i, int64_t j) {
        double sum = 0;
        for (int32_t d = 0; d < of.width; ++d) {
          sum += double{of.vectors[i * of.width + d]} * of.vectors[j * of.width + d];
        }
        return sum;
      },
      expected, scratch.data());
  EXPECT_EQ(this->Run(of), expected);
}

TEST(DiverseGuardTest, AcceptsSizesWithinTheCapacity) {
  EXPECT_TRUE(Accepts(64, {0.5f, 64, 16}));
  EXPECT_TRUE(Accepts(4096, {1, kMaxDiversePool, kMaxDiverse}));
  for (const DiverseRequest& bad : {DiverseRequest{1, 65, 16}, DiverseRequest{1, 4, 5},
                                    DiverseRequest{1, 4, 0}, DiverseRequest{1, 0, 0}}) {
    EXPECT_FALSE(Accepts(64, bad));
  }
  EXPECT_FALSE(Accepts(4096, {1, kMaxDiversePool + 1, 5}));
  EXPECT_FALSE(Accepts(4096, {1, kMaxDiversePool, kMaxDiverse + 1}));
}

}  // namespace
}  // namespace sluice::kernels::cuda
