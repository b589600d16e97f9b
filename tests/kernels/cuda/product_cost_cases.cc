#include <algorithm>
#include <array>

#include "kernels/cuda/gated_projection.h"
#include "kernels/cuda/hopper_projection.h"
#include "kernels/cuda/int8.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/projection.h"
#include "kernels/cuda/score.h"
#include "tests/kernels/cuda/cost_case_list.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

RowTiles TilesOn(DeviceLab& lab, const std::vector<RowGroup>& groups, int32_t rows) {
  std::vector<RowGroup> tiles(MaxRowTiles(rows, std::ssize(groups)));
  const int32_t count = CutIntoRowTiles(groups, tiles.data());
  return {lab.Put(tiles), lab.Put<int32_t>({count}), static_cast<int32_t>(tiles.size()),
          groups.size() == 1, MaxTileRows(rows / std::ssize(groups))};
}

constexpr int32_t kMaxRank = 512;  // of adapters

struct ProductCase {
  int32_t matrices, rows;  // positions that share the rows
  int32_t k, n;
  int32_t processors = 132;
};

// Products in int8 with rows that are already quantised, and scaling of sums that already exist.
template <typename T>
void AddInt8(Cases& cases, const ProductCase& c, const char* what) {
  cases.Add(
      absl::StrCat("Int8 ", NameOf<T>(), what), absl::StrCat(c.rows, " x ", c.k, " x ", c.n),
      [=](DeviceLab& lab, Random& random) {
        const int32_t stride = Int8Stride(c.k);
        auto* const x = lab.Room<int8_t>(c.rows * stride);
        auto* const row_scales = lab.Room<float>(c.rows);
        auto* const scales = lab.Room<float>(c.n);
        auto* const factors = lab.Room<float>(c.n);
        auto* const weight = lab.Room<int8_t>(PackedElements<int8_t>(1, c.k, c.n));
        const float* const plain = Values<float>(lab, random, c.k * c.n);
        QuantizeRows<T>(lab.stream(), {.x = Values<T>(lab, random, c.rows * c.k),
                                       .k = c.k,
                                       .rows = Live(lab, c.rows),
                                       .out = x,
                                       .scales = row_scales});
        ScaleColumns(
            lab.stream(),
            {.in = plain, .matrices = 1, .k = c.k, .n = c.n, .scales = scales, .factors = factors});
        auto* const columns = lab.Room<int8_t>(c.n * stride);
        QuantizeColumns(
            lab.stream(),
            {.in = plain, .matrices = 1, .k = c.k, .n = c.n, .factors = factors, .out = columns});
        PackWeights<int8_t>(lab.stream(),
                            {.in = columns, .matrices = 1, .k = stride, .n = c.n, .out = weight});
        StreamOfProcessors stream(lab.stream(), c.processors);
        Project<T, T, int8_t>(stream, {.x = x,
                                       .weight = weight,
                                       .bias = Values<T>(lab, random, c.n),
                                       .bias_stride = 0,
                                       .k = stride,
                                       .n = c.n,
                                       .tiles = TilesOn(lab, {{0, 0, c.rows}}, c.rows),
                                       .accumulate = false,
                                       .out = lab.Room<T>(c.rows * c.n),
                                       .row_scales = row_scales,
                                       .scales = scales});
        ScaleSums<T>(lab.stream(), {.sums = lab.Put(std::vector<int32_t>(c.rows * c.n, 12345)),
                                    .n = c.n,
                                    .rows = Live(lab, c.rows),
                                    .row_scales = row_scales,
                                    .scales = scales,
                                    .bias = Values<T>(lab, random, c.n),
                                    .out = lab.Room<T>(c.rows * c.n)});
      });
}

template <typename T, typename Out>
void AddProjection(Cases& cases, const ProductCase& c, const char* what) {
  cases.Add(absl::StrCat("Projection ", NameOf<T>(), what),
            absl::StrCat(c.rows, " x ", c.k, " x ", c.n,
                         c.matrices > 1 ? absl::StrCat(", ", c.matrices, " positions") : ""),
            [=](DeviceLab& lab, Random& random) {
              std::vector<RowGroup> groups;
              const int32_t each = c.rows / c.matrices;
              for (int32_t m = 0; m < c.matrices; ++m) groups.push_back({m, m * each, each});
              StreamOfProcessors stream(lab.stream(), c.processors);
              Project<T, Out>(stream, {.x = Values<T>(lab, random, c.rows * c.k),
                                       .weight = PackedValues<T>(lab, random, c.matrices, c.k, c.n),
                                       .bias = Values<T>(lab, random, c.n),
                                       .bias_stride = 0,
                                       .k = c.k,
                                       .n = c.n,
                                       .tiles = TilesOn(lab, groups, c.rows),
                                       .accumulate = false,
                                       .out = lab.Room<Out>(c.rows * c.n)});
            });
}

// A product of rows of `k` elements and matrices [k, n] in tables, one for each group of rows. The
// rows of the result have room for kMaxRank elements.
template <typename T>
void AddPlaced(Cases& cases, const ProductCase& c, const char* what) {
  cases.Add(absl::StrCat("ProjectionPlaced ", NameOf<T>(), what),
            absl::StrCat(c.rows, " x ", c.k, " x ", c.n, ", ", c.matrices, " adapters"),
            [=](DeviceLab& lab, Random& random) {
              std::vector<RowGroup> groups;
              std::vector<const PlacedMatrix*> tables;
              const int32_t each = c.rows / c.matrices, stride = std::max(c.n, kMaxRank);
              for (int32_t m = 0; m < c.matrices; ++m) {
                groups.push_back({m, m * each, each});
                tables.push_back(
                    lab.Put<PlacedMatrix>({{PackedValues<T>(lab, random, 1, c.k, c.n), c.k, c.n}}));
              }
              StreamOfProcessors stream(lab.stream(), c.processors);
              ProjectPlaced<T>(stream,
                               {.x = Values<T>(lab, random, c.rows * c.k),
                                .weight = nullptr,
                                .bias = nullptr,
                                .bias_stride = 0,
                                .k = c.k,
                                .n = stride,
                                .tiles = TilesOn(lab, groups, c.rows),
                                .accumulate = false,
                                .out = lab.Room<T>(c.rows * stride)},
                               {lab.Put(tables), 0, lab.Put<int32_t>({c.n})});
            });
}

// The rows are named after the tiles that the product has with this number of processors.
void AddHopperProjection(Cases& cases, const ProductCase& c, const std::string& tiles) {
  cases.Add(absl::StrCat("HopperProjection bf16", tiles),
            absl::StrCat(c.rows, " x ", c.k, " x ", c.n,
                         c.matrices > 1 ? absl::StrCat(", ", c.matrices, " positions") : ""),
            [=](DeviceLab& lab, Random& random) {
              StreamOfProcessors stream(lab.stream(), c.processors);
              std::vector<RowGroup> groups;
              for (int32_t m = 0; m < c.matrices; ++m) {
                groups.push_back({m, m * c.rows / c.matrices, c.rows / c.matrices});
              }
              ProjectOnHopper(stream,
                              {.x = Values<BFloat16>(lab, random, c.rows * c.k),
                               .weight = lab.Put(PackedForWarpgroups(
                                   RandomValues<BFloat16>(random, int64_t{c.matrices} * c.k * c.n),
                                   c.matrices, c.k, c.n)),
                               .bias = Values<BFloat16>(lab, random, c.n),
                               .bias_stride = 0,
                               .k = c.k,
                               .n = c.n,
                               .tiles = TilesOn(lab, groups, c.rows),
                               .accumulate = false,
                               .out = lab.Room<BFloat16>(c.rows * c.n)});
              EXPECT_EQ(stream.kernel(),
                        absl::StrCat("HopperProjection", tiles.substr(tiles.rfind(' ') + 1)));
            });
}

void AddFewRowsOfGroups(Cases& cases, const ProductCase& c) {
  cases.Add("Projection bf16 of few rows for warpgroups",
            absl::StrCat(c.rows, " x ", c.k, " x ", c.n), [=](DeviceLab& lab, Random& random) {
              StreamOfProcessors stream(lab.stream(), c.processors);
              EXPECT_TRUE(ProjectFewRowsOfGroups(
                  stream, {.x = Values<BFloat16>(lab, random, c.rows * c.k),
                           .weight = lab.Put(PackedForWarpgroups(
                               RandomValues<BFloat16>(random, c.k * c.n), 1, c.k, c.n)),
                           .bias = Values<BFloat16>(lab, random, c.n),
                           .bias_stride = 0,
                           .k = c.k,
                           .n = c.n,
                           .tiles = TilesOn(lab, {{0, 0, c.rows}}, c.rows),
                           .accumulate = false,
                           .out = lab.Room<BFloat16>(c.rows * c.n)}));
            });
}

// The products of a gated MLP in one kernel. The scales of int8 do not matter.
template <typename T, typename Operand>
void AddGated(Cases& cases, const ProductCase& c, const std::string& what) {
  constexpr bool kInt8 = std::is_same_v<Operand, int8_t>;
  const bool groups = what.ends_with("warpgroups");
  cases.Add(absl::StrCat("GatedProjection ", what), absl::StrCat(c.rows, " x ", c.k, " x ", c.n),
            [=](DeviceLab& lab, Random& random) {
              StreamOfProcessors stream(lab.stream(), c.processors);
              const auto layout = groups ? WeightLayout::kWarpgroups : WeightLayout::kPanels;
              const auto weight = [&] {
                return lab.Put(
                    std::vector<Operand>(WeightElements<Operand>(layout, 1, c.k, c.n), Operand{}));
              };
              ProjectionArgs<T, T, Operand> gate = {
                  .x = lab.Put(std::vector<Operand>(c.rows * c.k, Operand{})),
                  .weight = weight(),
                  .bias = Values<T>(lab, random, c.n),
                  .bias_stride = 0,
                  .k = c.k,
                  .n = c.n,
                  .tiles = TilesOn(lab, {{0, 0, c.rows}}, c.rows),
                  .accumulate = false,
                  .out = lab.Room<T>(c.rows * c.n),
                  .row_scales = kInt8 ? Values<float>(lab, random, c.rows) : nullptr,
                  .scales = kInt8 ? Values<float>(lab, random, c.n) : nullptr};
              ProjectionArgs<T, T, Operand> up = gate;
              up.weight = weight();
              up.bias = Values<T>(lab, random, c.n);
              up.activate = true;
              up.activation = Activation::kSilu;
              up.gate = gate.out;
              up.out = lab.Room<T>(c.rows * c.n);
              if constexpr (std::is_same_v<Operand, BFloat16>) {
                if (groups) {
                  EXPECT_TRUE(ProjectGatedOfGroups(stream, gate, up));
                  return;
                }
              }
              EXPECT_TRUE(ProjectGated(stream, gate, up));
            });
}

template <typename T>
void AddScore(Cases& cases, int32_t rows, int32_t k, const char* what, int32_t processors = 132) {
  constexpr int32_t n = std::is_same_v<T, float> ? 512 : 2048;
  cases.Add(absl::StrCat("Score ", NameOf<T>(), what), absl::StrCat(rows, " x ", k, " x ", n),
            [=](DeviceLab& lab, Random& random) {
              std::vector<SampleRequest> requests(rows);
              for (int32_t r = 0; r < rows; ++r) {
                requests[r] = {.params = {}, .target = RandomInt(random, 0, n - 1), .num_top = 0};
              }
              StreamOfProcessors stream(lab.stream(), processors);
              Score<T>(stream, {.x = Values<T>(lab, random, rows * k),
                                .weight = PackedValues<T>(lab, random, 1, k, n),
                                .bias = nullptr,
                                .k = k,
                                .n = n,
                                .soft_cap = 0,
                                .tiles = TilesOn(lab, {{0, 0, rows}}, rows),
                                .requests = lab.Put(requests),
                                .rows = Live(lab, rows),
                                .parts = lab.Room<ScorePart>(ScoreParts(rows, n)),
                                .target_logits = lab.Room<float>(rows),
                                .first = nullptr,
                                .outcomes = lab.Room<SampleOutcome>(rows)});
            });
}

template <typename T>
void AddScores(Cases& cases) {
  AddScore<T>(cases, kRows, 256, "");
  AddScore<T>(cases, kRows, 255, " odd");
}

template <typename T>
void AddPacking(Cases& cases) {
  constexpr std::array<std::pair<DType, const char*>, 4> kStored = {
      {{DType::kF32, "f32"}, {DType::kF16, "f16"}, {DType::kBF16, "bf16"}, {DType::kI8, "int8"}}};
  static constexpr int32_t kSide = 256;
  for (const auto& [dtype, stored] : kStored) {
    const auto put = [dtype = dtype](DeviceLab& lab) {
      return lab.Put(std::vector<uint8_t>(kSide * kSide * DTypeBytes(dtype), 0x11));
    };
    cases.Add(absl::StrCat("Convert ", stored, " to ", NameOf<T>()),
              absl::StrCat(kSide * kSide, " numbers"),
              [dtype = dtype, put](DeviceLab& lab, Random&) {
                Convert<T>(lab.stream(), {.in = put(lab),
                                          .dtype = dtype,
                                          .count = kSide * kSide,
                                          .out = lab.Room<T>(kSide * kSide)});
              });
    cases.Add(absl::StrCat("Transpose ", stored, " to ", NameOf<T>()),
              absl::StrCat(kSide, " x ", kSide), [dtype = dtype, put](DeviceLab& lab, Random&) {
                Transpose<T>(lab.stream(), {.in = put(lab),
                                            .dtype = dtype,
                                            .rows = kSide,
                                            .columns = kSide,
                                            .in_stride = kSide,
                                            .out = lab.Room<T>(kSide * kSide),
                                            .out_stride = kSide});
              });
  }
  if constexpr (std::is_same_v<T, BFloat16>) {
    cases.Add("PackForWarpgroups bf16", absl::StrCat(kSide, " x ", kSide),
              [](DeviceLab& lab, Random& random) {
                PackForWarpgroups(lab.stream(), {.in = Values<T>(lab, random, kSide * kSide),
                                                 .matrices = 1,
                                                 .k = kSide,
                                                 .n = kSide,
                                                 .out = lab.Room<T>(kSide * kSide)});
              });
  }
  cases.Add(absl::StrCat("Pack ", NameOf<T>()), absl::StrCat(kSide, " x ", kSide),
            [](DeviceLab& lab, Random& random) {
              PackWeights<T>(lab.stream(), {.in = Values<T>(lab, random, kSide * kSide),
                                            .matrices = 1,
                                            .k = kSide,
                                            .n = kSide,
                                            .out = lab.Room<T>(kSide * kSide)});
            });
}

}  // namespace

void AddProductCases(Cases& cases) {
  AddProjection<BFloat16, BFloat16>(cases, {1, 256, 512, 512}, "");
  AddProjection<BFloat16, BFloat16>(cases, {1, 16, 512, 1024}, " of few rows");
  AddProjection<BFloat16, BFloat16>(cases, {1, kRows, 512, 1024}, " of 64 rows");
  AddProjection<BFloat16, BFloat16>(cases, {16, kRows, 512, 256}, " by position");
  AddProjection<BFloat16, BFloat16>(cases, {64, kRows, 512, 512}, " of a row by position");
  AddProjection<BFloat16, BFloat16>(cases, {1, 1, 4096, 1024}, " of a row");
  AddProjection<BFloat16, BFloat16>(cases, {1, kRows, 512, 1023}, " odd");
  AddProjection<BFloat16, BFloat16>(cases, {1, 128, 512, 1024, 8}, " of many rows");
  AddInt8<BFloat16>(cases, {1, 256, 512, 512}, "");
  AddInt8<BFloat16>(cases, {1, 16, 512, 1024}, " of few rows");
  AddInt8<BFloat16>(cases, {1, kRows, 512, 1024}, " of 64 rows");
  AddInt8<BFloat16>(cases, {1, kRows, 511, 1023}, " odd");
  AddInt8<BFloat16>(cases, {1, 128, 512, 1024, 8}, " of many rows");
  AddInt8<float>(cases, {1, 256, 512, 256}, "");
  AddInt8<float>(cases, {1, 16, 512, 256}, " of few rows");
  AddInt8<float>(cases, {1, kRows, 511, 255}, " odd");
  AddInt8<float>(cases, {1, 128, 512, 256, 2}, " of many rows");
  AddHopperProjection(cases, {1, kRows, 512, 1024}, " Tiny");
  AddHopperProjection(cases, {16, kRows, 512, 256}, " by position Small");
  AddHopperProjection(cases, {1, kRows, 512, 512, 16}, " Small");
  AddHopperProjection(cases, {1, kRows, 512, 256, 4}, " Medium");
  AddHopperProjection(cases, {1, 128, 512, 512, 1}, " Large");
  AddFewRowsOfGroups(cases, {1, 16, 512, 1024});
  AddGated<BFloat16, BFloat16>(cases, {1, 16, 512, 1024}, "bf16");
  AddGated<BFloat16, BFloat16>(cases, {1, kRows, 512, 1024}, "bf16 of 64 rows");
  AddGated<BFloat16, BFloat16>(cases, {1, 16, 512, 1024}, "bf16 for warpgroups");
  AddGated<BFloat16, int8_t>(cases, {1, 16, 512, 1024}, "bf16, int8");
  AddGated<float, int8_t>(cases, {1, 16, 512, 256}, "f32, int8");
  AddProjection<BFloat16, float>(cases, {1, 256, 512, 512}, " to f32");
  AddProjection<BFloat16, float>(cases, {1, 32, 512, 1024}, " to f32 of few rows");
  AddProjection<BFloat16, float>(cases, {1, kRows, 512, 1023}, " to f32 odd");
  AddProjection<BFloat16, float>(cases, {1, 128, 512, 1024, 8}, " to f32 of many rows");
  AddProjection<float, float>(cases, {1, kRows, 512, 256}, "");
  AddProjection<float, float>(cases, {1, kRows, 512, 255}, " odd");
  AddPlaced<BFloat16>(cases, {16, kRows, 512, 16}, "");
  AddPlaced<BFloat16>(cases, {16, kRows, 511, 16}, " odd");
  AddPlaced<float>(cases, {16, kRows, 512, 16}, "");
  AddPlaced<float>(cases, {16, kRows, 511, 16}, " odd");
  AddScores<BFloat16>(cases);
  AddScore<BFloat16>(cases, 128, 256, " of many rows", 16);
  AddScores<float>(cases);
  AddPacking<BFloat16>(cases);
  AddPacking<float>(cases);
}

}  // namespace sluice::kernels::cuda
