#include "tests/kernels/cuda/loop_cases.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/gated_projection.h"
#include "kernels/cuda/hopper_attention.h"
#include "kernels/cuda/hopper_projection.h"
#include "kernels/cuda/matrix_tables.h"
#include "kernels/cuda/projection.h"
#include "kernels/cuda/score.h"
#include "kernels/cuda/weight_layout.h"
#include "tests/kernels/cuda/attention_fixture.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

template <typename T>
constexpr const char* TypeName() {
  if (std::is_same_v<T, BFloat16>) return "BFloat16";
  return std::is_same_v<T, float> ? "float" : "signed char";
}

template <typename T>
T* Zeros(DeviceLab& lab, int64_t n) {
  return lab.Put(std::vector<T>(n, T{}));
}

RowTiles TilesOf(DeviceLab& lab, int32_t rows) {
  std::vector<RowGroup> tiles(MaxRowTiles(rows, 1));
  const int32_t count = CutIntoRowTiles(std::vector<RowGroup>{{0, 0, rows}}, tiles.data());
  return {lab.Put(tiles), lab.Put<int32_t>({count}), static_cast<int32_t>(tiles.size()), true,
          MaxTileRows(rows)};
}

// A product with one block of each tile of rows. Its values do not matter.
struct LoopProduct {
  int32_t rows, n;
  int32_t processors = 132;
};

template <typename T, typename Out, typename Operand>
ProjectionArgs<T, Out, Operand> Product(DeviceLab& lab, const LoopProduct& c, int32_t k,
                                        WeightLayout layout) {
  constexpr bool kInt8 = std::is_same_v<Operand, int8_t>;
  return {.x = Zeros<Operand>(lab, int64_t{c.rows} * k),
          .weight = Zeros<Operand>(lab, WeightElements<Operand>(layout, 1, k, c.n)),
          .bias = nullptr,
          .bias_stride = 0,
          .k = k,
          .n = c.n,
          .tiles = TilesOf(lab, c.rows),
          .accumulate = false,
          .out = lab.Room<Out>(c.rows * c.n),
          .row_scales = kInt8 ? Zeros<float>(lab, c.rows) : nullptr,
          .scales = kInt8 ? Zeros<float>(lab, c.n) : nullptr};
}

template <typename T, typename Out, typename Operand>
std::string TypesOf() {
  return absl::StrCat(TypeName<T>(), ", ", TypeName<Out>(), ", ", TypeName<Operand>());
}

class Loops {
 public:
  std::vector<LoopCase> Take() { return std::move(loops_); }

  // Adds a product whose step is `depth` of k.
  void AddDepth(std::string source, std::string code, std::string kernel, int32_t depth,
                int32_t rows, std::function<void(DeviceLab& lab, int32_t k)> run) {
    loops_.push_back(
        {.source = std::move(source),
         .code = std::move(code),
         .kernel = std::move(kernel),
         .step = absl::StrCat(depth, " of k, ", rows, " rows"),
         .run = [=](DeviceLab& lab, std::mt19937_64&, int32_t steps) { run(lab, depth * steps); }});
  }

  template <typename T, typename Out, typename Operand = T>
  void AddFewRows(int32_t rows) {
    AddDepth("projection.cu", absl::StrCat("FewRows<", TypesOf<T, Out, Operand>(), ">"),
             "ProjectionFewRows", 2 * kSliceDepth<Operand>, rows, [=](DeviceLab& lab, int32_t k) {
               Project<T, Out, Operand>(
                   lab.stream(),
                   Product<T, Out, Operand>(lab, {rows, 16}, k, WeightLayout::kPanels));
             });
  }
  template <typename T, typename Out, typename Operand = T>
  void AddProjection(const std::string& tile, const std::string& kernel, const LoopProduct& c) {
    AddDepth("projection.cu",
             absl::StrCat("Projection<", TypesOf<T, Out, Operand>(), ", ", tile, ">"), kernel,
             kSliceDepth<Operand>, c.rows, [=](DeviceLab& lab, int32_t k) {
               StreamOfProcessors stream(lab.stream(), c.processors);
               Project<T, Out, Operand>(stream,
                                        Product<T, Out, Operand>(lab, c, k, WeightLayout::kPanels));
             });
  }
  // Adds the products of tiles of 64 and of 128 rows.
  template <typename T, typename Out, typename Operand = T>
  void AddTiles() {
    AddProjection<T, Out, Operand>("SmallTile, true", "Projection", {256, 64});
    AddProjection<T, Out, Operand>("SmallTile, false", "ProjectionUnaligned", {64, 63});
    AddProjection<T, Out, Operand>("LargeTile, true", "ProjectionLarge", {128, 128, 1});
  }
  // Adds the products with a matrix in a table.
  void AddPlaced(const std::string& aligned, const std::string& kernel, int32_t n) {
    AddDepth("projection.cu", absl::StrCat("Placed<BFloat16, ", aligned, ">"), kernel,
             kSliceDepth<BFloat16>, 64, [=](DeviceLab& lab, int32_t k) {
               const auto product =
                   Product<BFloat16, BFloat16, BFloat16>(lab, {64, n}, k, WeightLayout::kPanels);
               const auto* const matrix = lab.Put<PlacedMatrix>({{product.weight, k, n}});
               ProjectPlaced<BFloat16>(lab.stream(), product,
                                       {lab.Put<const PlacedMatrix*>({matrix}), 0});
             });
  }
  // Rows that are not aligned have an odd number of elements.
  void AddScore(const std::string& tile, const std::string& kernel, const LoopProduct& c,
                bool aligned = true) {
    AddDepth("score.cu", absl::StrCat("ScoreTiles<BFloat16, ", tile, ">"), kernel,
             kSliceDepth<BFloat16>, c.rows, [=](DeviceLab& lab, int32_t depth) {
               const int32_t k = aligned ? depth : depth - 1;
               StreamOfProcessors stream(lab.stream(), c.processors);
               Score<BFloat16>(stream,
                               {.x = Zeros<BFloat16>(lab, int64_t{c.rows} * k),
                                .weight = Zeros<BFloat16>(lab, PackedElements<BFloat16>(1, k, c.n)),
                                .bias = nullptr,
                                .k = k,
                                .n = c.n,
                                .soft_cap = 0,
                                .tiles = TilesOf(lab, c.rows),
                                .requests = lab.Put(std::vector<SampleRequest>(
                                    c.rows, {.params = {}, .target = 0, .num_top = 0})),
                                .rows = {lab.Put<int32_t>({c.rows}), c.rows},
                                .parts = lab.Room<ScorePart>(ScoreParts(c.rows, c.n)),
                                .target_logits = lab.Room<float>(c.rows),
                                .first = nullptr,
                                .outcomes = lab.Room<SampleOutcome>(c.rows)});
             });
  }
  void AddFewRowsOfGroups(int32_t rows) {
    AddDepth("projection.cu", "FewRowsOfGroups", "ProjectionFewRowsOfGroups",
             2 * kSliceDepth<BFloat16>, rows, [=](DeviceLab& lab, int32_t k) {
               EXPECT_TRUE(ProjectFewRowsOfGroups(
                   lab.stream(), Product<BFloat16, BFloat16, BFloat16>(lab, {rows, 16}, k,
                                                                       WeightLayout::kWarpgroups)));
             });
  }
  // Adds the two products of a gated MLP. A step has slices of both.
  template <typename T, typename Operand>
  void AddGatedFewRows(int32_t rows, WeightLayout layout = WeightLayout::kPanels) {
    const bool groups = layout == WeightLayout::kWarpgroups;
    AddDepth("gated_projection.cu",
             groups ? "GatedFewRowsOfGroups"
                    : absl::StrCat("GatedFewRows<", TypeName<T>(), ", ", TypeName<Operand>(), ">"),
             groups ? "GatedFewRowsOfGroups" : "GatedFewRows", kSliceDepth<Operand>, rows,
             [=](DeviceLab& lab, int32_t k) {
               const auto gate = Product<T, T, Operand>(lab, {rows, 16}, k, layout);
               auto up = gate;
               up.activate = true;
               up.gate = gate.out;
               if constexpr (std::is_same_v<Operand, BFloat16>) {
                 if (groups) {
                   EXPECT_TRUE(ProjectGatedOfGroups(lab.stream(), gate, up));
                   return;
                 }
               }
               EXPECT_TRUE(ProjectGated(lab.stream(), gate, up));
             });
  }
  void AddHopper(const std::string& tile, const LoopProduct& c) {
    AddDepth("hopper_projection.cu", absl::StrCat("HopperProjection<", tile, ">"),
             absl::StrCat("HopperProjection", tile), kGroupSliceDepth, c.rows,
             [=](DeviceLab& lab, int32_t k) {
               StreamOfProcessors stream(lab.stream(), c.processors);
               ProjectOnHopper(stream, Product<BFloat16, BFloat16, BFloat16>(
                                           lab, c, k, WeightLayout::kWarpgroups));
             });
  }
  // Adds attention of 64 queries, whose step is a chunk of keys. All steps are in one segment.
  // `width` is the number of features of a head. With `shaped`, scores have a soft cap.
  void AddAttention(int32_t dims, const std::string& pieces, int32_t width, bool shaped = false) {
    AddChunks("attention.cu",
              absl::StrCat("Attention<BFloat16, ", dims, ", ", pieces, width < dims ? ", no" : ",",
                           " bulk,", shaped ? "" : " no", " shaped>"),
              absl::StrCat(shaped ? "Shaped" : "", "Attention", width < dims ? "ByRows" : ""),
              {.q_heads = 1, .kv_heads = 1, .head_dim = width, .soft_cap = shaped ? 30.0 : 0.0},
              &Attention<BFloat16>);
  }
  void AddHopperAttention(int32_t dims) {
    AddChunks("hopper_attention.cu", absl::StrCat("HopperAttention<", dims, ">"), "HopperAttention",
              {.q_heads = 1, .kv_heads = 1, .head_dim = dims}, &AttentionOnHopper);
  }

 private:
  void AddChunks(std::string source, std::string code, std::string kernel,
                 const reference::AttentionShape& heads,
                 void (*attention)(Stream&, const AttentionArgs<BFloat16>&)) {
    const int32_t keys = heads.head_dim > 128 ? 64 : 128;
    loops_.push_back({.source = std::move(source),
                      .code = std::move(code),
                      .kernel = std::move(kernel),
                      .step = absl::StrCat(keys, " keys, 64 rows"),
                      .fewest = 2,
                      .more = 512 / keys - 2,
                      .run = [=](DeviceLab& lab, std::mt19937_64& random, int32_t steps) {
                        const auto sequences =
                            RandomSequences<BFloat16>(random, heads, {{steps * keys - 64, 64}});
                        (void)RunAttention<BFloat16>(
                            lab, random, heads, sequences, /*causal=*/true, {},
                            {.processors = 1, .wants_diagnostics = false}, attention);
                      }});
  }

  std::vector<LoopCase> loops_;
};

}  // namespace

std::vector<LoopCase> LoopCases() {
  Loops loops;
  for (const int32_t rows : {16, 64}) {
    loops.AddFewRows<BFloat16, BFloat16>(rows);
    loops.AddFewRows<BFloat16, float>(rows);
    loops.AddFewRows<BFloat16, BFloat16, int8_t>(rows);
    loops.AddFewRows<float, float, int8_t>(rows);
    loops.AddFewRowsOfGroups(rows);
    loops.AddGatedFewRows<BFloat16, BFloat16>(rows);
    loops.AddGatedFewRows<BFloat16, int8_t>(rows);
    loops.AddGatedFewRows<float, int8_t>(rows);
    loops.AddGatedFewRows<BFloat16, BFloat16>(rows, WeightLayout::kWarpgroups);
  }
  loops.AddTiles<BFloat16, BFloat16>();
  loops.AddTiles<BFloat16, float>();
  loops.AddTiles<BFloat16, BFloat16, int8_t>();
  loops.AddTiles<float, float, int8_t>();
  loops.AddPlaced("true", "ProjectionPlaced", 64);
  loops.AddPlaced("false", "ProjectionPlacedUnaligned", 63);
  loops.AddScore("SmallTile, true", "ScoreTiles", {64, 64});
  loops.AddScore("SmallTile, false", "ScoreTilesUnaligned", {64, 64}, /*aligned=*/false);
  loops.AddScore("LargeTile, true", "ScoreTilesLarge", {128, 128, 1});
  loops.AddHopper("Tiny", {64, 32, 132});
  loops.AddHopper("Small", {64, 64, 1});
  loops.AddHopper("Medium", {64, 128, 1});
  loops.AddHopper("Large", {128, 256, 1});
  for (const bool shaped : {false, true}) {
    loops.AddAttention(64, "64, 4", 64, shaped);
    loops.AddAttention(64, "64, 4", 56, shaped);
    loops.AddAttention(128, "64, 4", 128, shaped);
    loops.AddAttention(128, "64, 4", 120, shaped);
    loops.AddAttention(256, "64, 3", 256, shaped);
    loops.AddAttention(256, "32, 3", 248, shaped);
  }
  loops.AddHopperAttention(64);
  loops.AddHopperAttention(128);
  return loops.Take();
}

}  // namespace sluice::kernels::cuda
