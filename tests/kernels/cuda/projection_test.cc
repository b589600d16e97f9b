#include "kernels/cuda/projection.h"

#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include "kernels/cuda/activation.h"
#include "kernels/reference/linear.h"
#include "tests/kernels/cuda/op_test.h"
#include "tests/kernels/cuda/packed_weights.h"
#include "tests/kernels/cuda/product_fixture.h"

namespace sluice::kernels::cuda {
namespace {

// Returns groups of the given sizes at ascending positions, with gaps.
std::vector<RowGroup> Groups(std::mt19937_64& random, const std::vector<int32_t>& counts,
                             int32_t* matrices) {
  std::vector<RowGroup> groups;
  int32_t position = -1, row = 0;
  for (int32_t count : counts) {
    position += RandomInt(random, 1, 2);
    groups.push_back({position, row, count});
    row += count;
  }
  *matrices = position + 1;
  return groups;
}

std::vector<int32_t> PositionsOf(const std::vector<RowGroup>& groups) {
  std::vector<int32_t> positions;
  for (const RowGroup& group : groups) {
    positions.insert(positions.end(), group.count, group.matrix);
  }
  return positions;
}

enum class Bias { kNone, kShared, kByPosition };

template <typename T>
class ProjectionTest : public OpTest {
 protected:
  void ExpectReference(const std::vector<int32_t>& counts, int32_t k, int32_t n, Bias bias_kind,
                       bool accumulate) {
    SCOPED_TRACE(testing::Message() << counts.size() << " groups, k " << k << ", n " << n);
    int32_t matrices;
    const std::vector<RowGroup> groups = Groups(random_, counts, &matrices);
    const int32_t rows = std::accumulate(counts.begin(), counts.end(), 0);
    const auto x = RandomValues<T>(random_, rows * k);
    const auto weight = RandomValues<T>(random_, int64_t{matrices} * k * n);
    const auto bias = RandomValues<T>(random_, bias_kind == Bias::kNone     ? 0
                                               : bias_kind == Bias::kShared ? n
                                                                            : matrices * n);
    const auto before = RandomValues<T>(random_, rows * n);
    const ProjectionArgs<T> args = {
        .x = lab_.Put(x),
        .weight = lab_.Put(Packed(weight, matrices, k, n)),
        .bias = bias.empty() ? nullptr : lab_.Put(bias),
        .bias_stride = bias_kind == Bias::kByPosition ? n : 0,
        .k = k,
        .n = n,
        .tiles = TilesOn(lab_, groups, rows + 5),
        .accumulate = accumulate,
        .out = accumulate ? lab_.Put(before) : lab_.template Room<T>(rows * n)};
    Project(lab_.stream(), args);
    std::vector<double> expected =
        reference::PositionWise(ToDouble(x), PositionsOf(groups), ToDouble(weight), ToDouble(bias),
                                bias_kind == Bias::kByPosition, k, n);
    for (size_t i = 0; accumulate && i < expected.size(); ++i) expected[i] += Widen(before[i]);
    EXPECT_TRUE(Matches(Op::kGemm, lab_.Get(args.out, rows * n), expected));
  }

  // Compares `distinct` rows by themselves with the same rows in groups of every size.
  void ExpectRowsIndependent(int32_t k, int32_t n, int32_t distinct) {
    SCOPED_TRACE(testing::Message() << "k " << k << ", n " << n << ", seed " << kSeed);
    const int32_t matrices = 2, position = 1;
    const auto x = RandomValues<T>(random_, int64_t{distinct} * k);
    const T* weight =
        lab_.Put(Packed(RandomValues<T>(random_, int64_t{matrices} * k * n), matrices, k, n));
    const auto project = [&](const std::vector<int32_t>& rows) {
      std::vector<T> in;
      for (int32_t row : rows) in.insert(in.end(), &x[int64_t{row} * k], &x[int64_t{row} * k] + k);
      const auto count = static_cast<int32_t>(rows.size());
      const ProjectionArgs<T> args = {.x = lab_.Put(in),
                                      .weight = weight,
                                      .bias = nullptr,
                                      .bias_stride = 0,
                                      .k = k,
                                      .n = n,
                                      .tiles = TilesOn(lab_, {{position, 0, count}}, count),
                                      .accumulate = false,
                                      .out = lab_.template Room<T>(rows.size() * n)};
      Project(lab_.stream(), args);
      return lab_.Get(args.out, rows.size() * n);
    };
    std::vector<std::vector<T>> alone;
    for (int32_t row = 0; row < distinct; ++row) alone.push_back(project({row}));
    for (int32_t size : {2, 7, 8, 9, 16, 17, 33, 64, 65, 70}) {
      std::vector<int32_t> rows(size);
      for (int32_t& row : rows) row = RandomInt(random_, 0, distinct - 1);
      const std::vector<T> together = project(rows);
      for (int32_t i = 0; i < size; ++i) {
        const T* const row = &together[int64_t{i} * n];
        EXPECT_TRUE(SameBits({row, row + n}, alone[rows[i]]))
            << "row " << rows[i] << " at place " << i << " of " << size;
      }
    }
    lab_.Clear();
  }
};
TYPED_TEST_SUITE(ProjectionTest, DTypes);

TYPED_TEST(ProjectionTest, EqualsTheReferenceForGroupsOfAllSizes) {
  this->ExpectReference({1}, 8, 8, Bias::kNone, false);
  this->ExpectReference({1, 2, 15, 16, 17, 1}, 64, 64, Bias::kShared, false);
  this->ExpectReference({64, 65, 3}, 40, 72, Bias::kByPosition, false);
  this->ExpectReference({130}, 200, 136, Bias::kShared, true);
  this->ExpectReference({3, 20}, 1100, 72, Bias::kShared, true);
}

TYPED_TEST(ProjectionTest, EqualsTheReferenceForOddSizes) {
  this->ExpectReference({1}, 1, 1, Bias::kNone, true);
  this->ExpectReference({5, 20}, 33, 70, Bias::kByPosition, false);
  this->ExpectReference({3}, 64, 7, Bias::kShared, false);
  this->ExpectReference({3}, 7, 64, Bias::kShared, false);
}

TYPED_TEST(ProjectionTest, AFusedActivationHasTheBitsOfTheActivationKernel) {
  using T = TypeParam;
  const int32_t k = 24;
  for (const auto& [rows, n] : {std::pair(1, 7), {70, 72}}) {
    for (int kind = 0; kind < kActivations; ++kind) {
      for (const bool gated : {false, true}) {
        SCOPED_TRACE(testing::Message() << rows << " rows of " << n << ", activation " << kind
                                        << ", gated " << gated << ", seed " << this->kSeed);
        const auto before = RandomValues<T>(this->random_, rows * n);
        // The inputs include a row with larger values than weights have, where the functions are
        // flat, and a NaN.
        auto x = RandomValues<T>(this->random_, rows * k, 4.0f);
        x[0] = Narrow<T>(std::numeric_limits<float>::quiet_NaN());
        ProjectionArgs<T> args = {
            .x = this->lab_.Put(x),
            .weight = this->lab_.Put(Packed(RandomValues<T>(this->random_, k * n), 1, k, n)),
            .bias = this->lab_.Put(RandomValues<T>(this->random_, n)),
            .bias_stride = 0,
            .k = k,
            .n = n,
            .tiles = TilesOn(this->lab_, {{0, 0, rows}}, rows + 5),
            .accumulate = kind % 2 == 0,
            .out = this->lab_.Put(before)};
        const T* gate =
            gated ? this->lab_.Put(RandomValues<T>(this->random_, rows * n, 4.0f)) : nullptr;
        Project(this->lab_.stream(), args);
        Activate<T>(this->lab_.stream(), {.activation = static_cast<Activation>(kind),
                                          .in = gated ? gate : args.out,
                                          .up = gated ? args.out : nullptr,
                                          .dim = n,
                                          .rows = this->Live(rows),
                                          .out = args.out});
        const std::vector<T> expected = this->lab_.Get(args.out, rows * n);
        args.out = this->lab_.Put(before);
        args.activate = true;
        args.activation = static_cast<Activation>(kind);
        args.gate = gate;
        Project(this->lab_.stream(), args);
        EXPECT_TRUE(SameBits(this->lab_.Get(args.out, rows * n), expected));
        EXPECT_TRUE(std::isnan(Widen(expected[0])));
        this->lab_.Clear();
      }
    }
  }
}

TYPED_TEST(ProjectionTest, FitsTheSharedMemoryOfEveryGpu) {
  using T = TypeParam;
  LimitedStream stream(this->lab_.stream(), kSharedBytesOfEveryGpu);
  T* out = this->lab_.template Room<T>(1);
  Project<T, T>(stream, {.x = this->lab_.Put(RandomValues<T>(this->random_, 1)),
                         .weight = this->lab_.Put(Packed<T>({T{}}, 1, 1, 1)),
                         .bias = nullptr,
                         .bias_stride = 0,
                         .k = 1,
                         .n = 1,
                         .tiles = TilesOn(this->lab_, {{0, 0, 1}}, 1),
                         .accumulate = false,
                         .out = out});
  EXPECT_TRUE(this->lab_.Finish().ok());
}

// For all numbers of rows: the tiles chosen with few and with many processors.
TYPED_TEST(ProjectionTest, ARowsBitsDoNotDependOnTheTiles) {
  using T = TypeParam;
  // The emulator computes 4 of the 4,096 columns.
  const int32_t k = 4096, n = Emulated() ? 4 : 4096, matrices = 2, most = Emulated() ? 130 : 200;
  const T* const x = this->lab_.Put(RandomValues<T>(this->random_, most * k));
  const T* const weight = this->lab_.Put(
      Packed(RandomValues<T>(this->random_, int64_t{matrices} * k * n), matrices, k, n));
  std::vector<T> expected;
  std::set<std::string> kernels;
  for (const int32_t rows : {most, 65, 16, 1}) {
    // A list that does not promise one group has small tiles.
    for (const auto& [processors, one_group] :
         {std::pair(kFewProcessors, true), {kFewProcessors, false}, {kManyProcessors, true}}) {
      StreamOfProcessors stream(this->lab_.stream(), processors);
      T* const out = this->lab_.template Room<T>(rows * n);
      RowTiles tiles = TilesOn(this->lab_, {{1, 0, rows}}, rows);
      tiles.one_group = one_group;
      Project<T, T>(stream, {.x = x,
                             .weight = weight,
                             .bias = nullptr,
                             .bias_stride = 0,
                             .k = k,
                             .n = n,
                             .tiles = tiles,
                             .accumulate = false,
                             .out = out});
      const std::vector<T> got = this->lab_.Get(out, rows * n);
      if (expected.empty()) expected = got;
      EXPECT_TRUE(SameBits(got, {expected.begin(), expected.begin() + rows * n}))
          << rows << " rows by " << stream.kernel() << ", seed " << this->kSeed;
      kernels.insert(stream.kernel());
    }
  }
  std::set<std::string> launched = {"Projection"};
  if (sizeof(T) == 2) launched.insert({"ProjectionLarge", "ProjectionFewRows"});
  EXPECT_EQ(kernels, launched);
}

// In float the sums equal a host's sums that are added in the documented order.
TEST(ProjectionOrderTest, SumsAreRunningSumsInAscendingOrder) {
  constexpr uint64_t kSeed = 20261124;
  std::mt19937_64 random(kSeed);
  for (const int32_t k : {511, 512, 513, 1700, 4096, 4600}) {
    DeviceLab lab(MakeDeviceUnderTest(kSeed));
    const int32_t rows = 3, n = 5;
    const auto x = RandomValues<float>(random, rows * k);
    const auto weight = RandomValues<float>(random, k * n);
    float* const out = lab.Room<float>(rows * n);
    Project<float, float>(lab.stream(), {.x = lab.Put(x),
                                         .weight = lab.Put(Packed(weight, 1, k, n)),
                                         .bias = nullptr,
                                         .bias_stride = 0,
                                         .k = k,
                                         .n = n,
                                         .tiles = TilesOn(lab, {{0, 0, rows}}, rows),
                                         .accumulate = false,
                                         .out = out});
    std::vector<float> expected(rows * n, 0);
    for (int32_t i = 0; i < rows * n; ++i) {
      for (int32_t j = 0; j < k; ++j) {
        expected[i] = std::fma(x[i / n * k + j], weight[j * n + i % n], expected[i]);
      }
    }
    EXPECT_TRUE(SameBits(lab.Get(out, rows * n), expected)) << "k " << k << ", seed " << kSeed;
  }
}

// Logits are float outputs of bfloat16 rows, as in the head.
TEST(LogitsTest, OfBFloat16RowsKeepTheirPrecision) {
  std::mt19937_64 random(7);
  DeviceLab lab(MakeDeviceUnderTest(7));
  const int32_t rows = 5;
  for (const auto& [k, n, processors] :
       {std::tuple(64, 72, kFewProcessors), {64, 72, kManyProcessors}, {33, 5, kFewProcessors}}) {
    const auto x = RandomValues<BFloat16>(random, rows * k);
    const auto weight = RandomValues<BFloat16>(random, k * n);
    float* out = lab.Room<float>(rows * n);
    StreamOfProcessors stream(lab.stream(), processors);
    Project<BFloat16, float>(stream, {.x = lab.Put(x),
                                      .weight = lab.Put(Packed(weight, 1, k, n)),
                                      .bias = nullptr,
                                      .bias_stride = 0,
                                      .k = k,
                                      .n = n,
                                      .tiles = TilesOn(lab, {{0, 0, rows}}, rows),
                                      .accumulate = false,
                                      .out = out});
    const std::vector<int32_t> positions(rows, 0);
    EXPECT_TRUE(Matches(
        Op::kGemm, lab.Get(out, rows * n),
        reference::PositionWise(ToDouble(x), positions, ToDouble(weight), {}, false, k, n)));
  }
}

// The same row is in groups of every size, at every place of the tile.
TYPED_TEST(ProjectionTest, ARowsBitsDoNotDependOnItsGroup) {
  this->ExpectRowsIndependent(72, 24, 70);
}

// The sizes of models take too long in the emulator. There, k is longer than all stages together
// and n is wider than a tile of columns.
TYPED_TEST(ProjectionTest, ARowsBitsDoNotDependOnItsGroupAtRealSizes) {
  if (Emulated()) return this->ExpectRowsIndependent(600, 136, 5);
  for (const auto& [k, n] :
       {std::pair(1024, 4096), {4096, 1024}, {4096, 4096}, {2880, 2048}, {512, 131072}}) {
    this->ExpectRowsIndependent(k, n, 70);
  }
}

// One capture serves steps with any groups within the bucket.
TYPED_TEST(ProjectionTest, ACaptureFollowsTheGroupsOfTheStep) {
  using T = TypeParam;
  const int32_t k = 16, n = 16, capacity = 40, matrices = 6;
  const auto x = RandomValues<T>(this->random_, capacity * k);
  const auto weight = RandomValues<T>(this->random_, matrices * k * n);
  auto* tiles = this->lab_.template Room<RowGroup>(capacity);
  auto* tile_count = this->lab_.template Room<int32_t>(1);
  const ProjectionArgs<T> args = {.x = this->lab_.Put(x),
                                  .weight = this->lab_.Put(Packed(weight, matrices, k, n)),
                                  .bias = nullptr,
                                  .bias_stride = 0,
                                  .k = k,
                                  .n = n,
                                  .tiles = {tiles, tile_count, capacity},
                                  .accumulate = false,
                                  .out = this->lab_.template Room<T>(capacity * n)};
  this->lab_.stream().BeginCapture();
  Project(this->lab_.stream(), args);
  auto graph = this->lab_.stream().EndCapture().value();
  for (const std::vector<RowGroup>& step :
       {std::vector<RowGroup>{{2, 0, 3}}, {{0, 0, 20}, {1, 20, 1}, {5, 21, 19}}, {{4, 0, 40}}}) {
    std::vector<RowGroup> cut(capacity);
    cut.resize(CutIntoRowTiles(step, cut.data()));
    this->lab_.template Write<RowGroup>(tiles, cut);
    this->lab_.template Write<int32_t>(tile_count,
                                       std::vector<int32_t>{static_cast<int32_t>(cut.size())});
    this->lab_.stream().Run(*graph);
    const std::vector<int32_t> positions = PositionsOf(step);
    const auto live = std::span(x).first(positions.size() * k);
    EXPECT_TRUE(Matches(
        Op::kGemm, this->lab_.Get(args.out, positions.size() * n),
        reference::PositionWise(ToDouble(live), positions, ToDouble(weight), {}, false, k, n)));
  }
}

// Matrices in places of their own, which differ in size or are missing. They have the bits of the
// same matrices one after another. One capture serves several mixes, also one without tiles.
template <typename T>
class ProjectionPlacedTest : public OpTest {
 protected:
  // Puts [k, n] in a place of its own.
  PlacedMatrix Place(const std::vector<T>& values, int32_t k, int32_t n) {
    return {lab_.Put(Packed(values, 1, k, n)), k, n};
  }
};
TYPED_TEST_SUITE(ProjectionPlacedTest, DTypes);

TYPED_TEST(ProjectionPlacedTest, RowsHaveTheBitsOfTheirMatrixInAnyMix) {
  using T = TypeParam;
  constexpr int32_t kIn = 72, kMost = 200, kCapacity = 140;
  for (const int32_t out : {136, 7}) {  // rows of 7 are not aligned
    const std::vector<int32_t> ranks = {8, 200, 0, 72, 16};
    std::vector<std::vector<PlacedMatrix>> tables;
    std::vector<const PlacedMatrix*> pointers;
    std::vector<std::vector<T>> down, up;
    for (const int32_t rank : ranks) {
      down.push_back(RandomValues<T>(this->random_, kIn * rank));
      up.push_back(RandomValues<T>(this->random_, rank * out));
      std::vector<PlacedMatrix> table(3, PlacedMatrix{});  // the first one is never used
      if (rank > 0) table[1] = this->Place(down.back(), kIn, rank);
      if (rank > 0) table[2] = this->Place(up.back(), rank, out);
      pointers.push_back(this->lab_.Put(table));
    }
    auto* const steps = this->lab_.template Room<const PlacedMatrix*>(ranks.size());
    auto* const tiles = this->lab_.template Room<RowGroup>(kCapacity);
    auto* const counts = this->lab_.template Room<int32_t>(2);
    const RowTiles list = {tiles, &counts[0], kCapacity};
    const auto x = RandomValues<T>(this->random_, kCapacity * kIn);
    const auto before = RandomValues<T>(this->random_, kCapacity * out);
    const ProjectionArgs<T> first = {.x = this->lab_.Put(x),
                                     .weight = nullptr,
                                     .bias = nullptr,
                                     .bias_stride = 0,
                                     .k = kIn,
                                     .n = kMost,
                                     .tiles = list,
                                     .accumulate = false,
                                     .out = this->lab_.template Room<T>(kCapacity * kMost)};
    ProjectionArgs<T> second = first;
    second.x = first.out;
    second.k = kMost;
    second.n = out;
    second.accumulate = true;
    second.out = this->lab_.Put(before);
    this->lab_.stream().BeginCapture();
    ProjectPlaced<T>(this->lab_.stream(), first, {steps, 1, &counts[1]});
    ProjectPlaced<T>(this->lab_.stream(), second, {steps, 2});
    auto graph = this->lab_.stream().EndCapture().value();
    // The matrix of a group is an index into the adapters of the step.
    struct Mix {
      std::vector<int32_t> adapters;
      std::vector<RowGroup> groups;
    };
    for (const Mix& mix : {Mix{{0}, {{0, 3, 70}}},
                           {{4, 1, 2, 3}, {{1, 0, 1}, {0, 1, 20}, {2, 30, 9}, {3, 99, 41}}},
                           {{}, {}},
                           {{1, 4}, {{1, 0, 2}, {0, 2, 64}, {1, 70, 70}}}}) {
      std::vector<const PlacedMatrix*> of_step;
      int32_t most = 1;
      for (const int32_t adapter : mix.adapters) {
        of_step.push_back(pointers[adapter]);
        most = std::max(most, ranks[adapter]);
      }
      std::vector<RowGroup> cut(kCapacity);
      cut.resize(CutIntoRowTiles(mix.groups, cut.data()));
      this->lab_.template Write<const PlacedMatrix*>(steps, of_step);
      this->lab_.template Write<RowGroup>(tiles, cut);
      this->lab_.template Write<int32_t>(
          counts, std::vector<int32_t>{static_cast<int32_t>(cut.size()), most});
      this->lab_.template Write<T>(second.out, before);
      this->lab_.stream().Run(*graph);
      std::vector<T> expected = before;
      for (const RowGroup& group : mix.groups) {
        const int32_t adapter = mix.adapters[group.matrix], rank = ranks[adapter];
        if (rank == 0) continue;
        ProjectionArgs<T> own = first;
        own.x = first.x + int64_t{group.first_row} * kIn;
        own.weight = this->lab_.Put(Packed(down[adapter], 1, kIn, rank));
        own.n = rank;
        own.tiles = TilesOn(this->lab_, {{0, 0, group.count}}, group.count);
        own.out = this->lab_.template Room<T>(group.count * rank);
        Project<T>(this->lab_.stream(), own);
        ProjectionArgs<T> then = second;
        then.x = own.out;
        then.weight = this->lab_.Put(Packed(up[adapter], 1, rank, out));
        then.k = rank;
        then.tiles = own.tiles;
        const auto rows = std::span(before).subspan(group.first_row * out, group.count * out);
        then.out = this->lab_.Put(rows);
        Project<T>(this->lab_.stream(), then);
        const std::vector<T> got = this->lab_.Get(then.out, rows.size());
        std::ranges::copy(got, expected.begin() + group.first_row * out);
      }
      EXPECT_TRUE(SameBits(this->lab_.Get(second.out, before.size()), expected))
          << mix.groups.size() << " groups, " << out << " columns, seed " << this->kSeed;
    }
    this->lab_.Clear();
  }
}

// This shows that one product of joined layers has the bits of separate products.
TYPED_TEST(ProjectionTest, AColumnDoesNotDependOnTheOthers) {
  using T = TypeParam;
  constexpr int32_t kRows = 37, kDepth = 72;
  const std::vector<int32_t> widths = {80, 24, 136};
  int32_t all = 0;
  for (const int32_t width : widths) all += width;
  const auto x = RandomValues<T>(this->random_, kRows * kDepth);
  const auto joined = RandomValues<T>(this->random_, kDepth * all);
  const auto run = [&](const std::vector<T>& weight, int32_t n) {
    const ProjectionArgs<T> args = {.x = this->lab_.Put(x),
                                    .weight = this->lab_.Put(Packed(weight, 1, kDepth, n)),
                                    .bias = nullptr,
                                    .bias_stride = 0,
                                    .k = kDepth,
                                    .n = n,
                                    .tiles = TilesOn(this->lab_, {{0, 0, kRows}}, kRows),
                                    .accumulate = false,
                                    .out = this->lab_.template Room<T>(kRows * n)};
    Project(this->lab_.stream(), args);
    return this->lab_.Get(args.out, kRows * n);
  };
  const std::vector<T> together = run(joined, all);
  int32_t first = 0;
  for (const int32_t width : widths) {
    std::vector<T> own, expected;
    for (int32_t k = 0; k < kDepth; ++k) {
      const auto row = joined.begin() + k * all + first;
      own.insert(own.end(), row, row + width);
    }
    for (int32_t r = 0; r < kRows; ++r) {
      const auto row = together.begin() + r * all + first;
      expected.insert(expected.end(), row, row + width);
    }
    EXPECT_TRUE(SameBits(run(own, width), expected)) << width << " columns from " << first;
    first += width;
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
