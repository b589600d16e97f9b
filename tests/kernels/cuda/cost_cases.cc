#include "tests/kernels/cuda/cost_cases.h"

#include <array>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/copy_pages.h"
#include "kernels/cuda/diverse.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/exchange.h"
#include "kernels/cuda/logits.h"
#include "kernels/cuda/mix.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/pool.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/route.h"
#include "kernels/cuda/same_rows.h"
#include "kernels/cuda/sample.h"
#include "kernels/cuda/xsa.h"
#include "tests/kernels/cuda/cost_case_list.h"

namespace sluice::kernels::cuda {
namespace {

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
  cases.AddWidths<T>("SameRows", kDim, kOddDim, [](DeviceLab& lab, Random& random, int32_t dim) {
    std::vector<int32_t> places(kRows);
    std::iota(places.rbegin(), places.rend(), 0);
    SameRows<T>(lab.stream(), {.values = Values<T>(lab, random, kRows * dim),
                               .expected = Values<T>(lab, random, kRows * dim),
                               .places = lab.Put(places),
                               .rows = kRows,
                               .width = dim,
                               .differing = lab.Put(std::vector<int32_t>(kRows, 0))});
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
  cases.Add(absl::StrCat("EmbedPlaced ", NameOf<T>()), absl::StrCat(kRows, " rows of 16"),
            [](DeviceLab& lab, Random& random) {
              std::vector<int32_t> ids(kRows);
              for (int32_t& id : ids) id = RandomInt(random, 0, 99);
              const PlacedMatrix* const table =
                  lab.Put<PlacedMatrix>({{Values<T>(lab, random, 100 * 16), 100, 16}});
              EmbedPlaced<T>(lab.stream(), {.ids = lab.Put(ids),
                                            .drawn = nullptr,
                                            .tiles = {lab.Put<RowGroup>({{0, 0, kRows}}),
                                                      lab.Put<int32_t>({1}), 1},
                                            .tables = {lab.Put<const PlacedMatrix*>({table}), 0},
                                            .stride = kDim,
                                            .out = lab.Room<T>(kRows * kDim)});
            });
  cases.AddWidths<T>("TakeInput", kDim, kOddDim, [](DeviceLab& lab, Random& random, int32_t dim) {
    TakeInput<T>(lab.stream(), {Values<float>(lab, random, kRows * dim), dim, Live(lab, kRows),
                                lab.Room<T>(kRows * dim)});
  });
}

constexpr int32_t kExperts = 128, kChosen = 8;

void AddRoute(Cases& cases) {
  cases.Add("Route", absl::StrCat(kRows, " rows, ", kChosen, " of ", kExperts, " experts"),
            [](DeviceLab& lab, Random& random) {
              const int64_t bytes = Routes::Bytes(kRows, kExperts, kChosen);
              Route(lab.stream(),
                    {.logits = Values<float>(lab, random, kRows * kExperts),
                     .softmax = RouteSoftmax::kOfChosen,
                     .rows = Live(lab, kRows),
                     .routes = Routes::At(lab.Room<char>(bytes), kRows, kExperts, kChosen)});
            });
}

template <typename T>
void AddExperts(Cases& cases) {
  cases.AddWidths<T>("Experts", kDim, kOddDim, [](DeviceLab& lab, Random& random, int32_t dim) {
    std::vector<int32_t> places(kRows * kChosen);
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), random);
    Routes routes = {.max_rows = kRows, .experts = kExperts, .chosen = kChosen};
    routes.places = lab.Put(places);
    routes.weights = Values<float>(lab, random, std::ssize(places));
    T* const copies = lab.Room<T>(std::ssize(places) * dim);
    T* const rows = Values<T>(lab, random, kRows * dim);
    CopyToPlaces<T>(
        lab.stream(),
        {.x = rows, .dim = dim, .rows = Live(lab, kRows), .routes = routes, .out = copies});
    Combine<T>(lab.stream(), {.x = copies,
                              .bias = nullptr,
                              .dim = dim,
                              .accumulate = true,
                              .rows = Live(lab, kRows),
                              .routes = routes,
                              .out = rows});
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
  const auto exclude_self = [](DeviceLab& lab, Random& random, int32_t dim) {
    ExcludeSelf<T>(lab.stream(), {.y = Values<T>(lab, random, kRows * kQueryHeads * dim),
                                  .v = Values<T>(lab, random, kRows * kKvHeads * dim),
                                  .q_heads = kQueryHeads,
                                  .kv_heads = kKvHeads,
                                  .head_dim = dim,
                                  .xsa = {.form = XsaForm::kNorm},
                                  .rows = Live(lab, kRows),
                                  .out = lab.Room<T>(kRows * kQueryHeads * dim)});
  };
  cases.AddWidths<T>("ExcludeSelf", kHead, kOddHead, exclude_self);
  for (const int32_t dim : {63, 64, 255, 256}) {
    cases.Add(absl::StrCat("ExcludeSelf ", NameOf<T>(), " of ", dim),
              absl::StrCat(kRows, " rows of ", dim),
              [=](DeviceLab& lab, Random& random) { exclude_self(lab, random, dim); });
  }
}

void AddSampling(Cases& cases) {
  const auto add = [&](const std::string& what, const SampleParams& params, int32_t num_top,
                       int32_t target = -1, int32_t rows = kRows, int32_t n = 2048) {
    cases.Add(absl::StrCat("Sample ", what), absl::StrCat(rows, " rows of ", n),
              [=](DeviceLab& lab, Random& random) {
                std::vector<SampleRequest> requests(rows);
                for (int32_t r = 0; r < rows; ++r) {
                  requests[r] = {.params = params, .target = target, .num_top = num_top};
                  requests[r].params.sample = static_cast<uint32_t>(r);
                }
                Sample(lab.stream(), {.logits = Values<float>(lab, random, rows * n, 5.0f),
                                      .n = n,
                                      .stride = n,
                                      .requests = lab.Put(requests),
                                      .rows = Live(lab, rows),
                                      .max_top = num_top,
                                      .scratch = lab.Room<uint64_t>(rows * n),
                                      .first = nullptr,
                                      .outcomes = lab.Room<SampleOutcome>(rows),
                                      .top_ids = lab.Room<int32_t>(rows * num_top),
                                      .top_logprobs = lab.Room<float>(rows * num_top),
                                      .top_scores = lab.Room<float>(rows * num_top)});
              });
  };
  add("at temperature 1", {.temperature = 1, .seed = 1}, 0);
  add("greedily", {.seed = 1}, 0);
  add("of top_k 50, top_p 0.9", {.temperature = 1, .top_k = 50, .top_p = 0.9f, .seed = 1}, 0);
  add("of top_p 0.9", {.temperature = 1, .top_p = 0.9f, .seed = 1}, 0);
  add("of top_p 0.9, wide", {.temperature = 1, .top_p = 0.9f, .seed = 1}, 0, -1, 2, 32768);
  add("of top_p 0.9, long", {.temperature = 1, .top_p = 0.9f, .seed = 1}, 0, -1, 2, 60000);
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
  AddAttentionCases(cases);
  AddProductCases(cases);
  AddFloatOps(cases);
  AddDiverse<float>(cases);
  AddDiverse<BFloat16>(cases);
  AddRoute(cases);
  AddExperts<float>(cases);
  AddExperts<BFloat16>(cases);
  return cases.Take();
}

}  // namespace sluice::kernels::cuda
