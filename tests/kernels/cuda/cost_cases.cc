#include "tests/kernels/cuda/cost_cases.h"

#include <array>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/copy_pages.h"
#include "kernels/cuda/diverse.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/exchange.h"
#include "kernels/cuda/hopper_projection.h"
#include "kernels/cuda/logits.h"
#include "kernels/cuda/mix.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/pool.h"
#include "kernels/cuda/projection.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/sample.h"
#include "kernels/cuda/score.h"
#include "kernels/cuda/xsa.h"
#include "tests/kernels/cuda/attention_fixture.h"
#include "tests/kernels/cuda/packed_weights.h"

namespace sluice::kernels::cuda {
namespace {

using Random = std::mt19937_64;

constexpr int32_t kRows = 64;
// Widths with and without accesses of 16 bytes.
constexpr int32_t kDim = 2048, kOddDim = 2047, kHead = 128, kOddHead = 127;

template <typename T>
const char* NameOf() {
  return std::is_same_v<T, float> ? "f32" : "bf16";
}

LiveRows Live(DeviceLab& lab, int32_t rows) { return {lab.Put<int32_t>({rows}), rows}; }

template <typename T>
T* Values(DeviceLab& lab, Random& random, int64_t n, float scale = 1.0f) {
  return lab.Put(RandomValues<T>(random, n, scale));
}

class Cases {
 public:
  std::vector<CostCase> Take() { return std::move(cases_); }

  void Add(std::string name, std::string shape, std::function<void(DeviceLab&, Random&)> run) {
    cases_.push_back({std::move(name), std::move(shape), std::move(run)});
  }
  // Adds "<op> <T>" and, for widths that allow no wide accesses, "<op> <T> odd". `run` is called
  // with the lab, the random numbers and a width.
  template <typename T, typename Run>
  void AddWidths(const std::string& op, int32_t even, int32_t odd, Run run) {
    for (const int32_t width : {even, odd}) {
      Add(absl::StrCat(op, " ", NameOf<T>(), width == odd ? " odd" : ""),
          absl::StrCat(kRows, " rows of ", width),
          [=](DeviceLab& lab, Random& random) { run(lab, random, width); });
    }
  }

 private:
  std::vector<CostCase> cases_;
};

template <typename T>
void AddRowOps(Cases& cases) {
  for (const bool centred : {false, true}) {
    const auto norm = [centred](DeviceLab& lab, Random& random, int32_t dim) {
      const NormArgs<T> args = {.x = Values<T>(lab, random, kRows * dim),
                                .residual = Values<T>(lab, random, kRows * dim),
                                .sum = lab.Room<T>(kRows * dim),
                                .weight = Values<T>(lab, random, dim),
                                .bias = centred ? Values<T>(lab, random, dim) : nullptr,
                                .eps = 1e-5f,
                                .dim = dim,
                                .rows = Live(lab, kRows),
                                .out = lab.Room<T>(kRows * dim)};
      centred ? LayerNorm(lab.stream(), args) : RmsNorm(lab.stream(), args);
    };
    const std::string name = centred ? "LayerNorm" : "RmsNorm";
    cases.AddWidths<T>(name, kDim, kOddDim, norm);
    cases.AddWidths<T>(name + " of heads", kHead, kOddHead, norm);
  }
  cases.AddWidths<T>("Activate", kDim, kOddDim, [](DeviceLab& lab, Random& random, int32_t dim) {
    Activate<T>(lab.stream(), {.activation = Activation::kSilu,
                               .in = Values<T>(lab, random, kRows * dim),
                               .up = Values<T>(lab, random, kRows * dim),
                               .dim = dim,
                               .rows = Live(lab, kRows),
                               .out = lab.Room<T>(kRows * dim)});
  });
  cases.AddWidths<T>("Mix", kDim, kOddDim, [](DeviceLab& lab, Random& random, int32_t dim) {
    Mix<T>(lab.stream(), {.a = Values<T>(lab, random, kRows * dim),
                          .a_weight = Values<T>(lab, random, dim),
                          .b = Values<T>(lab, random, kRows * dim),
                          .b_weight = Values<T>(lab, random, dim),
                          .dim = dim,
                          .rows = Live(lab, kRows),
                          .out = lab.Room<T>(kRows * dim)});
  });
  cases.AddWidths<T>("Exchange", kDim, kOddDim, [](DeviceLab& lab, Random& random, int32_t dim) {
    std::vector<int32_t> places(kRows);
    std::iota(places.begin(), places.end(), 0);
    const int32_t tokens = dim == kDim ? 8 : 1;
    Exchange<T>(lab.stream(), {.in = Values<T>(lab, random, kRows * dim),
                               .places = lab.Put(places),
                               .tokens = tokens,
                               .block = dim / tokens,
                               .rows = Live(lab, kRows),
                               .out = lab.Room<T>(kRows * dim)});
  });
  cases.AddWidths<T>("CopyPages", kHead, kOddHead, [](DeviceLab& lab, Random& random, int32_t dim) {
    constexpr int32_t kMatrices = 4, kPages = 32, kHeads = 2, kCopies = 16;
    std::vector<PageCopy> copies;
    for (int32_t i = 0; i < kCopies; ++i) {
      copies.push_back({.from = kCopies, .to = i, .positions = 7});
    }
    CopyPages<T>(lab.stream(),
                 {.kv = Values<T>(lab, random, kMatrices * kPages * kHeads * kPageTokens * dim),
                  .matrices = kMatrices,
                  .pages = kPages,
                  .kv_heads = kHeads,
                  .head_dim = dim,
                  .copies = lab.Put(copies),
                  .rows = Live(lab, kCopies)});
  });
  cases.AddWidths<T>("Embed", kDim, kOddDim, [](DeviceLab& lab, Random& random, int32_t dim) {
    std::vector<int32_t> ids(kRows);
    for (int32_t& id : ids) id = RandomInt(random, 0, 99);
    Embed<T>(lab.stream(), {.table = Values<T>(lab, random, 100 * dim),
                            .ids = lab.Put(ids),
                            .dim = dim,
                            .rows = Live(lab, kRows),
                            .out = lab.Room<T>(kRows * dim)});
  });
  cases.AddWidths<T>("TakeInput", kDim, kOddDim, [](DeviceLab& lab, Random& random, int32_t dim) {
    TakeInput<T>(lab.stream(), {Values<float>(lab, random, kRows * dim), dim, Live(lab, kRows),
                                lab.Room<T>(kRows * dim)});
  });
}

template <typename T>
void AddPooling(Cases& cases) {
  cases.AddWidths<T>("SumRows", kDim, kOddDim, [](DeviceLab& lab, Random& random, int32_t dim) {
    constexpr int32_t kSums = 4, kEach = kRows / kSums;
    std::vector<int32_t> ids(kRows);
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<RowRange> ranges;
    for (int32_t s = 0; s < kSums; ++s) ranges.push_back({s * kEach, kEach});
    SumRows<T>(lab.stream(), {.x = Values<T>(lab, random, kRows * dim),
                              .dim = dim,
                              .ids = lab.Put(ids),
                              .ranges = lab.Put(ranges),
                              .rows = Live(lab, kSums),
                              .out = lab.Room<double>(kSums * dim)});
  });
}

template <typename T>
void AddHeadOps(Cases& cases) {
  static constexpr int32_t kQueryHeads = 8, kKvHeads = 2;
  cases.AddWidths<T>(
      "RopeAndStore", kHead, kOddHead, [](DeviceLab& lab, Random& random, int32_t dim) {
        std::vector<int32_t> slots(kRows);
        std::iota(slots.begin(), slots.end(), 0);
        const int32_t rotary = dim / 2 * 2, size = kRows * kKvHeads * dim;
        RopeAndStore<T>(lab.stream(), {.cos = Values<float>(lab, random, kRows * rotary / 2),
                                       .sin = Values<float>(lab, random, kRows * rotary / 2),
                                       .rotary_dim = rotary,
                                       .positions = lab.Put(slots),
                                       .kv_slots = lab.Put(slots),
                                       .q_heads = kQueryHeads,
                                       .q = Values<T>(lab, random, kRows * kQueryHeads * dim),
                                       .k = Values<T>(lab, random, size),
                                       .v = Values<T>(lab, random, size),
                                       .kv = {lab.Room<T>(size), lab.Room<T>(size), kKvHeads, dim},
                                       .rows = Live(lab, kRows)});
      });
  cases.AddWidths<T>(
      "ExcludeSelf", kHead, kOddHead, [](DeviceLab& lab, Random& random, int32_t dim) {
        ExcludeSelf<T>(lab.stream(), {.y = Values<T>(lab, random, kRows * kQueryHeads * dim),
                                      .v = Values<T>(lab, random, kRows * kKvHeads * dim),
                                      .q_heads = kQueryHeads,
                                      .kv_heads = kKvHeads,
                                      .head_dim = dim,
                                      .xsa = {.form = XsaForm::kNorm},
                                      .rows = Live(lab, kRows),
                                      .out = lab.Room<T>(kRows * kQueryHeads * dim)});
      });
}

RowTiles TilesOn(DeviceLab& lab, const std::vector<RowGroup>& groups, int32_t rows) {
  std::vector<RowGroup> tiles(MaxRowTiles(rows, std::ssize(groups)));
  const int32_t count = CutIntoRowTiles(groups, tiles.data());
  return {lab.Put(tiles), lab.Put<int32_t>({count}), static_cast<int32_t>(tiles.size()),
          groups.size() == 1};
}

template <typename T>
T* PackedValues(DeviceLab& lab, Random& random, int64_t matrices, int32_t k, int32_t n) {
  return lab.Put(Packed(RandomValues<T>(random, matrices * k * n, 1.0f), matrices, k, n));
}

struct ProductCase {
  int32_t matrices, rows;  // positions that share the rows
  int32_t k, n;
  int32_t processors = 132;
};

template <typename T, typename Out>
void AddProjection(Cases& cases, const ProductCase& c, const char* what) {
  cases.Add(absl::StrCat("Projection ", NameOf<T>(), what),
            absl::StrCat(c.rows, " x ", c.k, " x ", c.n,
                         c.matrices > 1 ? absl::StrCat(", ", c.matrices, " positions") : ""),
            [=](DeviceLab& lab, Random& random) {
              std::vector<RowGroup> groups;
              const int32_t each = c.rows / c.matrices;
              for (int32_t m = 0; m < c.matrices; ++m) groups.push_back({m, m * each, each});
              SplitSums split;
              if (const int64_t bytes = SplitSumsBytes(c.k); bytes > 0) {
                split = {lab.Room<float>(bytes / sizeof(float)),
                         lab.Put(std::vector<int32_t>(kMostSplitTiles))};
              }
              StreamOfProcessors stream(lab.stream(), c.processors);
              Project<T, Out>(stream, {.x = Values<T>(lab, random, c.rows * c.k),
                                       .weight = PackedValues<T>(lab, random, c.matrices, c.k, c.n),
                                       .bias = Values<T>(lab, random, c.n),
                                       .bias_stride = 0,
                                       .k = c.k,
                                       .n = c.n,
                                       .tiles = TilesOn(lab, groups, c.rows),
                                       .accumulate = false,
                                       .out = lab.Room<Out>(c.rows * c.n),
                                       .split = split});
            });
}

void AddHopperProjection(Cases& cases, int32_t matrices, int32_t n, const char* what) {
  constexpr int32_t kDepth = 512;
  cases.Add(absl::StrCat("HopperProjection bf16", what),
            absl::StrCat(kRows, " x ", kDepth, " x ", n,
                         matrices > 1 ? absl::StrCat(", ", matrices, " positions") : ""),
            [=](DeviceLab& lab, Random& random) {
              std::vector<RowGroup> groups;
              for (int32_t m = 0; m < matrices; ++m) {
                groups.push_back({m, m * kRows / matrices, kRows / matrices});
              }
              ProjectOnHopper(lab.stream(), {.x = Values<BFloat16>(lab, random, kRows * kDepth),
                                             .weight = Values<BFloat16>(
                                                 lab, random, int64_t{matrices} * kDepth * n),
                                             .bias = Values<BFloat16>(lab, random, n),
                                             .bias_stride = 0,
                                             .k = kDepth,
                                             .n = n,
                                             .tiles = TilesOn(lab, groups, kRows),
                                             .accumulate = false,
                                             .out = lab.Room<BFloat16>(kRows * n)});
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

// A head of each width that has a kernel, with the limits of shared memory that lead to different
// ones. With `window`, scores have a soft cap too.
template <typename T>
void AddAttention(Cases& cases, int64_t window) {
  using Places = std::vector<std::pair<int32_t, int32_t>>;
  const auto add = [&](const std::string& which, int64_t dim, int32_t limit, const Places& places,
                       const std::string& shape) {
    cases.Add(absl::StrCat(window == 0 ? "Attention " : "Attention in a window ", NameOf<T>(), " ",
                           dim, which),
              absl::StrCat(shape, ", 4/2 heads of ", dim), [=](DeviceLab& lab, Random& random) {
                const reference::AttentionShape heads = {.q_heads = 4,
                                                         .kv_heads = 2,
                                                         .head_dim = dim,
                                                         .window = window,
                                                         .soft_cap = window == 0 ? 0.0 : 30.0};
                const auto sequences = RandomSequences<T>(random, heads, places);
                (void)RunAttention<T>(lab, random, heads, sequences, /*causal=*/true, {},
                                      {limit, lab.device().info().processors});
              });
  };
  const int32_t prompt = std::is_same_v<T, float> ? 32 : 64;
  const Places prefill = {{0, prompt}, {0, prompt}}, decode(8, {127, 1});
  const std::string what = absl::StrCat("prefill of 2 x ", prompt);
  constexpr int32_t kMost = 227 << 10;
  for (const int64_t dim : {64, 128, 256}) {
    for (const int64_t width : {dim, dim - 1}) {
      add("", width, kMost, prefill, what);
      for (const int32_t kib : {163, 99}) {
        const int32_t bytes = AttentionSharedBytes<T>(static_cast<int32_t>(width), kib << 10);
        if (bytes == AttentionSharedBytes<T>(static_cast<int32_t>(width), kMost)) continue;
        add(absl::StrCat(" within ", kib, " KiB"), width, kib << 10, prefill, what);
      }
    }
  }
  add(" decode", 128, kMost, decode, "8 rows on 128 positions");
  const auto long_decode = [&](int32_t rows, int64_t dim, int32_t context) {
    add(absl::StrCat(" decode of ", rows), dim, kMost, Places(rows, {context - 1, 1}),
        absl::StrCat(rows, rows == 1 ? " row" : " rows", " on ", context, " positions"));
  };
  for (const int64_t dim : {64, 256}) {
    long_decode(1, dim, 1024);
    long_decode(1, dim - 1, 1024);
  }
  long_decode(1, kOddHead, 1024);
  if (window != 0) return long_decode(1, kHead, 1024);
  long_decode(1, kHead, 8192);
  if constexpr (!std::is_same_v<T, float>) long_decode(8, kHead, 8192);
}

void AddSampling(Cases& cases) {
  static constexpr int32_t kVocabulary = 2048;
  const auto add = [&](const std::string& what, const SampleParams& params, int32_t num_top,
                       int32_t target = -1) {
    cases.Add(absl::StrCat("Sample ", what), absl::StrCat(kRows, " rows of ", kVocabulary),
              [=](DeviceLab& lab, Random& random) {
                std::vector<SampleRequest> requests(kRows);
                for (int32_t r = 0; r < kRows; ++r) {
                  requests[r] = {.params = params, .target = target, .num_top = num_top};
                  requests[r].params.sample = static_cast<uint32_t>(r);
                }
                Sample(lab.stream(),
                       {.logits = Values<float>(lab, random, kRows * kVocabulary, 5.0f),
                        .n = kVocabulary,
                        .stride = kVocabulary,
                        .requests = lab.Put(requests),
                        .rows = Live(lab, kRows),
                        .max_top = num_top,
                        .scratch = lab.Room<uint64_t>(kRows * kVocabulary),
                        .first = nullptr,
                        .outcomes = lab.Room<SampleOutcome>(kRows),
                        .top_ids = lab.Room<int32_t>(kRows * num_top),
                        .top_logprobs = lab.Room<float>(kRows * num_top),
                        .top_scores = lab.Room<float>(kRows * num_top)});
              });
  };
  add("at temperature 1", {.temperature = 1, .seed = 1}, 0);
  add("greedily", {.seed = 1}, 0);
  add("of top_k 50, top_p 0.9", {.temperature = 1, .top_k = 50, .top_p = 0.9f, .seed = 1}, 0);
  add("of typical_p 0.9", {.temperature = 1, .typical_p = 0.9f, .seed = 1}, 0);
  add("with 20 candidates", {.seed = 1}, 20);
  add("of a target", {}, 0, 7);
}

void AddFloatOps(Cases& cases) {
  cases.AddWidths<float>("FinishLogits", 4096, 4095, [](DeviceLab& lab, Random& random, int32_t n) {
    std::vector<int32_t> begin(kRows + 1), excluded(kRows);
    std::iota(begin.begin(), begin.end(), 0);
    std::iota(excluded.begin(), excluded.end(), 5);
    FinishLogits(lab.stream(), {.logits = Values<float>(lab, random, kRows * n, 5.0f),
                                .n = n,
                                .stride = n,
                                .soft_cap = 2,
                                .excluded = lab.Put(excluded),
                                .begin = lab.Put(begin),
                                .rows = Live(lab, kRows)});
  });
}

template <typename T>
void AddDiverse(Cases& cases) {
  constexpr int32_t kItems = 256, kPool = 64, kCount = 16, kDiverseRows = 8;
  cases.Add(
      absl::StrCat("Diversify ", NameOf<T>()),
      absl::StrCat(kCount, " of ", kPool, " in ", kDiverseRows, " rows, items of 128"),
      [](DeviceLab& lab, Random& random) {
        std::vector<int32_t> ids(kDiverseRows * kPool);
        for (int32_t i = 0; i < std::ssize(ids); ++i) ids[i] = i * 5 % kItems;
        Diversify<T>(
            lab.stream(),
            {.weight = PackedValues<T>(lab, random, 1, 128, kItems),
             .packed = true,
             .k = 128,
             .columns = kItems,
             .requests = lab.Put(std::vector<DiverseRequest>(kDiverseRows, {0.5f, kPool, kCount})),
             .rows = Live(lab, kDiverseRows),
             .first = nullptr,
             .outcomes = lab.Put(std::vector<SampleOutcome>(kDiverseRows)),
             .max_top = kPool,
             .factors = lab.Room<double>(kDiverseRows * DiverseFactor(kPool)),
             .top_ids = lab.Put(ids),
             .top_logprobs = Values<float>(lab, random, kDiverseRows * kPool),
             .top_scores = Values<float>(lab, random, kDiverseRows * kPool)});
      });
}

template <typename T>
void AddPacking(Cases& cases) {
  constexpr std::array<std::pair<DType, const char*>, 3> kStored = {
      {{DType::kF32, "f32"}, {DType::kF16, "f16"}, {DType::kBF16, "bf16"}}};
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

std::vector<CostCase> CostCases() {
  Cases cases;
  AddSampling(cases);
  AddRowOps<BFloat16>(cases);
  AddRowOps<float>(cases);
  AddPooling<BFloat16>(cases);
  AddHeadOps<BFloat16>(cases);
  AddPooling<float>(cases);
  AddHeadOps<float>(cases);
  for (const int64_t window : {0, 700}) {
    AddAttention<BFloat16>(cases, window);
    AddAttention<float>(cases, window);
  }
  AddProjection<BFloat16, BFloat16>(cases, {1, kRows, 512, 1024}, "");
  AddProjection<BFloat16, BFloat16>(cases, {16, kRows, 512, 256}, " by position");
  AddProjection<BFloat16, BFloat16>(cases, {64, kRows, 512, 512}, " of a row by position");
  AddProjection<BFloat16, BFloat16>(cases, {1, 1, 4096, 1024}, " of a row");
  AddProjection<BFloat16, BFloat16>(cases, {1, kRows, 512, 1023}, " odd");
  AddProjection<BFloat16, BFloat16>(cases, {1, 128, 512, 1024, 8}, " of many rows");
  AddHopperProjection(cases, 1, 1024, "");
  AddHopperProjection(cases, 16, 256, " by position");
  AddProjection<BFloat16, float>(cases, {1, kRows, 512, 1024}, " to f32");
  AddProjection<BFloat16, float>(cases, {1, kRows, 512, 1023}, " to f32 odd");
  AddProjection<BFloat16, float>(cases, {1, 128, 512, 1024, 8}, " to f32 of many rows");
  AddProjection<float, float>(cases, {1, kRows, 512, 256}, "");
  AddProjection<float, float>(cases, {1, kRows, 512, 255}, " odd");
  AddScores<BFloat16>(cases);
  AddScore<BFloat16>(cases, 128, 256, " of many rows", 16);
  AddScores<float>(cases);
  AddFloatOps(cases);
  AddPacking<BFloat16>(cases);
  AddDiverse<float>(cases);
  AddDiverse<BFloat16>(cases);
  AddPacking<float>(cases);
  return cases.Take();
}

}  // namespace sluice::kernels::cuda
