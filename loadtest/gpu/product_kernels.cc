#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/cuda/dense_layers.h"
#include "engine/model/adapter_limits.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/gated_projection.h"
#include "kernels/cuda/hopper_attention.h"
#include "kernels/cuda/hopper_projection.h"
#include "kernels/cuda/int8.h"
#include "kernels/cuda/projection.h"
#include "kernels/cuda/same_rows.h"
#include "kernels/cuda/weight_layout.h"
#include "loadtest/gpu/cases.h"

namespace sluice::gpu {
namespace {

namespace cuda = kernels::cuda;
using T = cuda::BFloat16;

struct ProjectionShape {
  int32_t groups, rows_each, k, n;

  int32_t rows() const { return groups * rows_each; }
  int64_t x() const { return int64_t{rows()} * k; }
  int64_t weight() const { return int64_t{groups} * k * n; }
  int64_t out() const { return int64_t{rows()} * n; }
  Measurement Moves(std::string name, size_t out_bytes, bool int8 = false) const {
    const int64_t operand_bytes = int8 ? sizeof(int8_t) : sizeof(T);
    return {.part = "products",
            .name = std::move(name),
            .shape = absl::StrCat("L", groups, " B", rows_each, " ", k, " x ", n,
                                  int8 ? " int8" : " bf16"),
            .bytes = static_cast<double>((x() + weight()) * operand_bytes +
                                         out() * static_cast<int64_t>(out_bytes)),
            .operations = 2.0 * rows() * k * n,
            .tensor_cores = true,
            .int8 = int8};
  }
};

// Returns the tiles of the rows on the device.
cuda::RowTiles Tiles(Bench& bench, const ProjectionShape& s) {
  std::vector<kernels::RowGroup> groups;
  for (int32_t g = 0; g < s.groups; ++g) groups.push_back({g, g * s.rows_each, s.rows_each});
  std::vector<kernels::RowGroup> tiles(cuda::MaxRowTiles(s.rows(), s.groups));
  const int32_t count = cuda::CutIntoRowTiles(groups, tiles.data());
  return {bench.Put(tiles), bench.Put(std::vector<int32_t>{count}), count, s.groups == 1,
          cuda::MaxTileRows(s.rows_each)};
}

enum class Tier { kPortable, kHopper };

template <typename Out>
Case OwnProjection(const char* name, const ProjectionShape& s, Tier tier = Tier::kPortable) {
  return KernelCase(s.Moves(name, sizeof(Out)), [=](Bench& bench) {
    const cuda::ProjectionArgs<T, Out> args = {
        .x = bench.Values<T>(s.x()),
        .weight = bench.Values<T>(cuda::WeightElements<T>(
            tier == Tier::kHopper ? cuda::WeightLayout::kWarpgroups : cuda::WeightLayout::kPanels,
            s.groups, s.k, s.n)),
        .bias = bench.Values<T>(s.n),
        .bias_stride = 0,
        .k = s.k,
        .n = s.n,
        .tiles = Tiles(bench, s),
        .accumulate = false,
        .out = bench.Room<Out>(s.out())};
    return [=, &bench] {
      if constexpr (sizeof(Out) == sizeof(T)) {
        if (tier == Tier::kHopper) return cuda::ProjectOnHopper(bench.stream(), args);
      }
      cuda::Project(bench.stream(), args);
    };
  });
}

// Times both layers of a gated MLP and its activation, with one kernel or with two.
Case GatedProjection(const char* name, const ProjectionShape& s, bool together) {
  Measurement measurement = s.Moves(name, sizeof(T));
  measurement.bytes += static_cast<double>(s.weight() * int64_t{sizeof(T)});
  measurement.operations *= 2;
  return KernelCase(measurement, [=](Bench& bench) {
    const auto weight = [&] {
      return bench.Values<T>(
          cuda::WeightElements<T>(cuda::WeightLayout::kPanels, s.groups, s.k, s.n));
    };
    const cuda::ProjectionArgs<T> gate = {.x = bench.Values<T>(s.x()),
                                          .weight = weight(),
                                          .bias = nullptr,
                                          .bias_stride = 0,
                                          .k = s.k,
                                          .n = s.n,
                                          .tiles = Tiles(bench, s),
                                          .accumulate = false,
                                          .out = bench.Room<T>(s.out())};
    cuda::ProjectionArgs<T> up = gate;
    up.weight = weight();
    up.out = bench.Room<T>(s.out());
    up.activate = true;
    up.activation = kernels::Activation::kSilu;
    up.gate = gate.out;
    return [=, &bench] {
      if (together && cuda::ProjectGated(bench.stream(), gate, up)) return;
      cuda::Project(bench.stream(), gate);
      cuda::Project(bench.stream(), up);
    };
  });
}

// Times both products of a layer's adapters, one adapter of this rank for each group of rows.
Case AdapterProducts(const ProjectionShape& s, int32_t rank) {
  Measurement measurement = s.Moves("adapter products", sizeof(T));
  absl::StrAppend(&measurement.shape, ", rank ", rank);
  const int64_t moved =
      s.x() + int64_t{s.groups} * (s.k + s.n) * rank + 2 * int64_t{s.rows()} * rank + 2 * s.out();
  measurement.bytes = static_cast<double>(moved * int64_t{sizeof(T)});
  measurement.operations = 2.0 * s.rows() * (s.k + s.n) * rank;
  return KernelCase(measurement, [=](Bench& bench) {
    const auto place = [&](int32_t k, int32_t n) -> cuda::PlacedMatrix {
      return {bench.Values<T>(cuda::WeightElements<T>(cuda::WeightLayout::kPanels, 1, k, n)), k, n};
    };
    std::vector<const cuda::PlacedMatrix*> tables;
    for (int32_t g = 0; g < s.groups; ++g) {
      tables.push_back(
          bench.Put(std::vector<cuda::PlacedMatrix>{place(s.k, rank), place(rank, s.n)}));
    }
    const cuda::PlacedMatrix* const* const of_step = bench.Put(tables);
    const int32_t* const most = bench.Put(std::vector<int32_t>{rank});
    const int32_t stride = kMaxAdapterRank;
    const cuda::ProjectionArgs<T> down = {.x = bench.Values<T>(s.x()),
                                          .weight = nullptr,
                                          .bias = nullptr,
                                          .bias_stride = 0,
                                          .k = s.k,
                                          .n = stride,
                                          .tiles = Tiles(bench, s),
                                          .accumulate = false,
                                          .out = bench.Room<T>(int64_t{s.rows()} * stride)};
    cuda::ProjectionArgs<T> up = down;
    up.x = down.out;
    up.k = stride;
    up.n = s.n;
    up.accumulate = true;
    up.out = bench.Values<T>(s.out());
    return [=, &bench] {
      cuda::ProjectPlaced<T>(bench.stream(), down, {of_step, 0, most});
      cuda::ProjectPlaced<T>(bench.stream(), up, {of_step, 1});
    };
  });
}

// Returns a new array of random bits.
const int8_t* Int8Values(Bench& bench, int64_t bytes) {
  return reinterpret_cast<const int8_t*>(bench.Values<T>((bytes + 1) / 2));
}

// Times the product of an int8 layer, with random bits as operands.
Case Int8Projection(const char* name, const ProjectionShape& s) {
  return KernelCase(s.Moves(name, sizeof(T), /*int8=*/true), [=](Bench& bench) {
    const int32_t k = cuda::Int8Stride(s.k);
    const cuda::ProjectionArgs<T, T, int8_t> args = {
        .x = Int8Values(bench, int64_t{s.rows()} * k),
        .weight = Int8Values(bench, cuda::PackedElements<int8_t>(s.groups, s.k, s.n)),
        .bias = bench.Values<T>(s.n),
        .bias_stride = 0,
        .k = k,
        .n = s.n,
        .tiles = Tiles(bench, s),
        .accumulate = false,
        .out = bench.Room<T>(s.out()),
        .row_scales = bench.Values<float>(s.rows()),
        .scales = bench.Values<float>(int64_t{s.groups} * s.n)};
    return [=, &bench] { cuda::Project(bench.stream(), args); };
  });
}

// Times a tuned kernel, only on the GPUs that it is made for. It need not have passed a trial.
Case OnHopper(Case timed) {
  timed.run = [run = timed.run, id = timed.id](Bench& bench) {
    const std::string& architecture = bench.info().architecture;
    if (architecture == "sm_90" || architecture == "simt") return run(bench);
    bench.Missing(absl::StrCat(id, ": the kernel is for sm_90, and this device is ", architecture));
  };
  return timed;
}

Case HopperProjection(const char* name, const ProjectionShape& s) {
  return OnHopper(OwnProjection<T>(name, s, Tier::kHopper));
}

// Returns the library's first algorithm for the number of rows, or with `invariant` the family that
// would serve. If there is none, records why and returns nullptr.
std::shared_ptr<const DenseFamily> FindFamily(Bench& bench, const Measurement& measurement,
                                              const DenseShape& shape, int32_t rows,
                                              bool invariant) {
  if (const auto library = bench.device().DenseLibrary(); !library.ok()) {
    bench.Missing(measurement.Id() + ": " + std::string(library.status().message()));
    return nullptr;
  }
  if (invariant) {
    // A trial takes long, and cases of several numbers of rows share one.
    static auto& found = *new std::map<DenseShape, std::shared_ptr<const DenseFamily>>();
    if (const auto known = found.find(shape); known != found.end()) return known->second;
    const auto layers = std::make_shared<DenseLayers>(bench.device(), bench.stream());
    // Random bits are valid int8 weights.
    const DenseFamily* const family =
        ValueOrDie(layers->Find(shape, bench.Values<T>(int64_t{shape.k} * shape.n),
                                shape.bias ? bench.Values<T>(shape.n) : nullptr));
    bench.Release();
    if (family != nullptr) {
      return found[shape] = std::shared_ptr<const DenseFamily>(layers, family);
    }
  } else {
    const std::vector<RowClass> classes = ClassesOf(shape);
    const auto own =
        std::ranges::find_if(classes, [rows](const RowClass& each) { return rows <= each.last; });
    auto layers =
        bench.device().DenseCandidates(shape, own == classes.end() ? classes.back() : *own);
    if (!layers.empty()) return std::make_shared<DenseFamily>(shape, std::move(layers.front()));
  }
  bench.Missing(measurement.Id() + ": no algorithm is " + (invariant ? "invariant" : "there"));
  return nullptr;
}

void* WorkspaceOf(Bench& bench, const DenseFamily& family) {
  const auto bytes = static_cast<int64_t>(family.workspace_bytes());
  return bytes > 0 ? bench.Room<char>(bytes) : nullptr;
}

// Times a dense layer by the library, with the workspace that its algorithm requires.
void TimeLibrary(Bench& bench, const Measurement& measurement, const ProjectionShape& s, bool head,
                 bool invariant) {
  const DenseShape shape = {.k = s.k,
                            .n = s.n,
                            .type = DenseType::kBF16,
                            .bias = !head,  // the engine gives the library no head with a bias
                            .accumulate = false,
                            .head = head};
  const auto layer = FindFamily(bench, measurement, shape, s.rows(), invariant);
  if (layer == nullptr) return;
  bench.Time(measurement, [&]() -> Launch {
    const DenseArgs args = {
        .x = bench.Values<T>(s.x()),
        .weight = bench.Values<T>(s.weight()),
        .bias = shape.bias ? bench.Values<T>(s.n) : nullptr,
        .rows = s.rows(),
        .out = head ? static_cast<void*>(bench.Room<float>(s.out())) : bench.Room<T>(s.out()),
        .workspace = WorkspaceOf(bench, *layer)};
    return [&layer, &bench, shape, args] { RunInSlices(*layer, shape, args, bench.stream()); };
  });
}

// Times an int8 layer by the library: the product, and the kernel that converts its sums.
void TimeInt8Library(Bench& bench, const Measurement& measurement, const ProjectionShape& s) {
  const DenseShape shape = {.k = cuda::Int8Stride(s.k),
                            .n = s.n,
                            .type = DenseType::kInt8,
                            .bias = false,
                            .accumulate = false};
  const auto layer = FindFamily(bench, measurement, shape, s.rows(), /*invariant=*/true);
  if (layer == nullptr) return;
  bench.Time(measurement, [&]() -> Launch {
    const DenseArgs args = {.x = Int8Values(bench, Int8DenseRows(s.rows()) * shape.k),
                            .weight = Int8Values(bench, int64_t{shape.n} * shape.k),
                            .bias = nullptr,
                            .rows = s.rows(),
                            .out = bench.Room<int32_t>(Int8Sums(s.rows(), shape.n)),
                            .workspace = WorkspaceOf(bench, *layer)};
    const cuda::ScaleSumsArgs<T> scaled = {.sums = nullptr,
                                           .n = s.n,
                                           .rows = bench.Rows(s.rows()),
                                           .row_scales = bench.Values<float>(s.rows()),
                                           .scales = bench.Values<float>(s.n),
                                           .bias = bench.Values<T>(s.n),
                                           .out = bench.Room<T>(s.out())};
    return [&layer, &bench, shape, args, scaled] {
      RunInt8InSlices(*layer, shape, args, scaled, bench.stream());
    };
  });
}

Case LibraryCase(Measurement measurement, const ProjectionShape& s, bool head, bool invariant) {
  return {.part = measurement.part,
          .id = measurement.Id(),
          .run = [=](Bench& bench) { TimeLibrary(bench, measurement, s, head, invariant); },
          .measures = measurement};
}

Case LibraryProjection(const char* name, const ProjectionShape& s, bool head = false) {
  return LibraryCase(s.Moves(absl::StrCat(name, ", library"), head ? sizeof(float) : sizeof(T)), s,
                     head,
                     /*invariant=*/true);
}

Case Int8LibraryProjection(const char* name, const ProjectionShape& s) {
  const Measurement measurement =
      s.Moves(absl::StrCat(name, ", library"), sizeof(T), /*int8=*/true);
  return {.part = measurement.part,
          .id = measurement.Id(),
          .run = [=](Bench& bench) { TimeInt8Library(bench, measurement, s); },
          .measures = measurement};
}

struct AttentionShape {
  const char* name;
  int32_t sequences, context, count;  // the step computes the last `count` positions of each
  kernels::XsaForm xsa = kernels::XsaForm::kOff;
};

struct Heads {
  int32_t q, kv, dim;
};

// Allocates inputs and returns a launch.
Launch MakeAttention(Bench& bench, const AttentionShape& s, const Heads& h, Tier tier) {
  const int32_t rows = s.sequences * s.count;
  const int64_t q = int64_t{rows} * h.q * h.dim;
  const int32_t pages_each = (s.context + cuda::kPageTokens - 1) / cuda::kPageTokens;
  std::vector<cuda::AttentionSequence> sequences;
  std::vector<int32_t> row_ids, pages;
  for (int32_t i = 0; i < s.sequences; ++i) {
    sequences.push_back({s.context - s.count, s.count, i * s.count, i * pages_each});
  }
  for (int32_t i = 0; i < rows; ++i) row_ids.push_back(i);
  for (int32_t i = 0; i < s.sequences * pages_each; ++i) pages.push_back(i);
  // Pages are in random order, as after some traffic.
  std::shuffle(pages.begin(), pages.end(), bench.random());
  const cuda::AttentionSizes sizes = {.q_heads = h.q,
                                      .kv_heads = h.kv,
                                      .causal = true,
                                      .max_context = s.context,
                                      .processors = bench.stream().processors(),
                                      .rows = rows,
                                      .sequences = s.sequences};
  std::vector<cuda::AttentionTile> tiles(cuda::MaxAttentionTiles(sizes));
  const cuda::AttentionTileCounts counts = cuda::CutIntoAttentionTiles(sequences, sizes, tiles);
  const int64_t cache = std::ssize(pages) * cuda::kPageTokens * h.kv * h.dim;
  const cuda::AttentionArgs<T> args = {
      .q = bench.Values<T>(q),
      .sequences = bench.Put(sequences),
      .rows = bench.Put(row_ids),
      .pages = bench.Put(pages),
      .tiles = {bench.Put(tiles), bench.Put(std::vector<cuda::AttentionTileCounts>{counts}),
                bench.Put(std::vector<int32_t>{0}), static_cast<int32_t>(tiles.size()),
                static_cast<int32_t>(cuda::MaxAttentionRecords(sizes))},
      .kv = {bench.Values<T>(cache), bench.Values<T>(cache), h.kv, h.dim},
      .q_heads = h.q,
      .scale = static_cast<float>(1 / std::sqrt(h.dim)),
      .causal = true,
      .xsa = {.form = s.xsa},
      .scratch =
          bench.Room<float>(std::max<int64_t>(1, cuda::AttentionScratchFloats(sizes, h.dim))),
      .out = bench.Room<T>(q)};
  return [=, &bench] {
    if (tier == Tier::kHopper) return cuda::AttentionOnHopper(bench.stream(), args);
    cuda::Attention(bench.stream(), args);
  };
}

Case AttentionCase(const AttentionShape& s, const Heads& h, Tier tier = Tier::kPortable) {
  const int32_t rows = s.sequences * s.count;
  const int64_t q = int64_t{rows} * h.q * h.dim;
  const double seen =
      s.count * (s.context - (s.count - 1) / 2.0);  // (query, key) pairs of one sequence and head
  const int64_t kv_elements = int64_t{2} * s.sequences * s.context * h.kv * h.dim;
  const Measurement measurement = {
      .part = "products",
      .name = s.name,
      .shape = absl::StrCat(s.sequences, " x ", s.count, " of ", s.context, ", ", h.q, "/", h.kv,
                            " heads of ", h.dim, " bf16"),
      .bytes = static_cast<double>((2 * q + kv_elements) * int64_t{sizeof(T)}),
      .operations = 4.0 * h.dim * h.q * s.sequences * seen,
      .tensor_cores = true};
  return KernelCase(measurement, [=](Bench& bench) { return MakeAttention(bench, s, h, tier); });
}

Case HopperAttention(const AttentionShape& s, const Heads& h) {
  return OnHopper(AttentionCase(s, h, Tier::kHopper));
}

void AddRehearsal(std::vector<Case>& cases) {
  const ProjectionShape dense = {1, 16, 40, 72};
  cases.push_back(OwnProjection<T>("position-wise projection", {3, 4, 40, 72}));
  cases.push_back(OwnProjection<T>("dense projection", dense));
  cases.push_back(HopperProjection("dense projection, hopper", dense));
  cases.push_back(GatedProjection("gated projection", dense, /*together=*/true));
  cases.push_back(AdapterProducts({3, 4, 40, 72}, 8));
  cases.push_back(Int8Projection("dense projection, int8", dense));
  cases.push_back(LibraryProjection("dense projection", dense));
  cases.push_back(Int8LibraryProjection("dense projection, int8", dense));
  cases.push_back(OwnProjection<float>("head projection", {1, 4, 40, 72}));
  const Heads heads = {4, 2, 16};
  for (const auto form : {kernels::XsaForm::kOff, kernels::XsaForm::kNorm}) {
    const bool xsa = form != kernels::XsaForm::kOff;
    cases.push_back(AttentionCase(
        {xsa ? "attention, prefill, XSA" : "attention, prefill", 2, 70, 70, form}, heads));
    cases.push_back(AttentionCase(
        {xsa ? "attention, decode, XSA" : "attention, decode", 3, 70, 1, form}, heads));
  }
  cases.push_back(HopperAttention({"attention, prefill, hopper", 2, 70, 70}, heads));
}

void AddProjections(std::vector<Case>& cases) {
  // The weights are larger than a GPU's cache.
  for (int32_t rows : {1, 4, 8, 16, 64}) {
    const ProjectionShape positions = {256, rows, 512, 512};
    cases.push_back(OwnProjection<T>("position-wise projection", positions));
    cases.push_back(HopperProjection("position-wise projection, hopper", positions));
    cases.push_back(Int8Projection("position-wise projection, int8", positions));
  }
  for (int32_t n : {4096, 1024}) {  // the sizes of q, and of k and v
    for (int32_t rows : {1, 16, 64, 256, 1024, 8192}) {
      cases.push_back(OwnProjection<T>("dense projection", {1, rows, 4096, n}));
      cases.push_back(HopperProjection("dense projection, hopper", {1, rows, 4096, n}));
      cases.push_back(Int8Projection("dense projection, int8", {1, rows, 4096, n}));
      cases.push_back(LibraryProjection("dense projection", {1, rows, 4096, n}));
      cases.push_back(Int8LibraryProjection("dense projection, int8", {1, rows, 4096, n}));
    }
  }
  for (int32_t rows : {1, 16, 64}) {
    const ProjectionShape mlp = {1, rows, 4096, 14336};
    cases.push_back(GatedProjection("gated projection", mlp, /*together=*/true));
    cases.push_back(GatedProjection("gated projection, two kernels", mlp, /*together=*/false));
  }
  for (int32_t adapters : {1, 8, 64}) {
    cases.push_back(AdapterProducts({adapters, 1024 / adapters, 768, 768}, 16));
  }
  for (int32_t rows : {32, 256, 1024, 4096}) {
    cases.push_back(OwnProjection<float>("head projection", {1, rows, 4096, 32768}));
  }
  cases.push_back(OwnProjection<float>("head projection", {1, 32, 4096, 128256}));
  for (int32_t n : {32768, 128256}) {
    cases.push_back(LibraryProjection("head projection", {1, kMaxHeadRows, 4096, n}, true));
  }
}

void AddAttention(std::vector<Case>& cases) {
  const Heads llama = {32, 8, 128};
  cases.push_back(AttentionCase({"attention, prefill", 8, 2048, 2048}, llama));
  cases.push_back(HopperAttention({"attention, prefill, hopper", 8, 2048, 2048}, llama));
  cases.push_back(
      AttentionCase({"attention, prefill, XSA", 8, 2048, 2048, kernels::XsaForm::kNorm}, llama));
  cases.push_back(AttentionCase({"attention, decode", 64, 2048, 1}, llama));
  cases.push_back(
      AttentionCase({"attention, decode, XSA", 64, 2048, 1, kernels::XsaForm::kNorm}, llama));
  for (int32_t context : {1024, 8192}) {
    for (int32_t sequences : {1, 16, 64, 256}) {
      cases.push_back(AttentionCase({"attention, decode", sequences, context, 1}, llama));
    }
  }
  cases.push_back(AttentionCase({"attention, decode", 1, 32768, 1}, llama));
  // Short sequences, as in recommenders and encoders.
  for (int32_t length : {32, 128}) {
    for (int32_t sequences : {64, 512}) {
      cases.push_back(AttentionCase({"attention, short", sequences, length, length}, {8, 8, 64}));
      cases.push_back(AttentionCase({"attention, short", sequences, length, length}, llama));
    }
  }
}

}  // namespace

std::vector<Case> ProductCases(Scale scale) {
  std::vector<Case> cases;
  if (scale == Scale::kGpu) {
    AddProjections(cases);
    AddAttention(cases);
  } else {
    AddRehearsal(cases);
  }
  return cases;
}

Launch AttentionWithXsa(Bench& bench, const XsaShape& s, kernels::XsaForm form) {
  return MakeAttention(bench, {"", s.sequences, s.tokens, s.tokens, form},
                       {s.q_heads, s.kv_heads, s.head_dim}, Tier::kPortable);
}

std::vector<Case> CeilingCases(Scale scale) {
  const bool gpu = scale == Scale::kGpu;
  const int64_t bytes = gpu ? int64_t{1} << 30 : 1 << 12;
  const Measurement copy = {.part = "ceilings",
                            .name = "ceiling of memory",
                            .shape = absl::StrCat(bytes, " bytes"),
                            .bytes = 2.0 * static_cast<double>(bytes)};
  Measurement read = copy;
  read.name = "ceiling of reads";
  const int32_t n = gpu ? 8192 : 16;
  const ProjectionShape square = {1, n, n, n};
  Measurement product = square.Moves("ceiling of products", sizeof(T));
  product.part = "ceilings";
  return {{copy.part, copy.Id(),
           [=](Bench& bench) {
             bench.Time(copy, [&]() -> Launch {
               const auto elements = bytes / static_cast<int64_t>(sizeof(T));
               auto* const from = bench.Values<T>(elements);
               auto* const to = bench.Room<T>(elements);
               return [=, &bench] { bench.stream().CopyOnDevice(to, from, bytes); };
             });
           },
           /*records=*/false, copy},
          KernelCase(read,
                     [=](Bench& bench) -> Launch {
                       // Compares two arrays by rows of 8 KiB, and writes almost nothing.
                       constexpr int32_t kWidth = 4096;
                       const auto rows = static_cast<int32_t>(
                           std::max<int64_t>(1, bytes / (kWidth * int64_t{sizeof(T)})));
                       std::vector<int32_t> places(rows);
                       std::iota(places.begin(), places.end(), 0);
                       const cuda::SameRowsArgs<T> args = {
                           .values = bench.Values<T>(int64_t{rows} * kWidth),
                           .expected = bench.Values<T>(int64_t{rows} * kWidth),
                           .places = bench.Put(places),
                           .rows = rows,
                           .width = kWidth,
                           .differing = bench.Put(std::vector<int32_t>(rows, 0))};
                       return [=, &bench] { cuda::SameRows<T>(bench.stream(), args); };
                     }),
          LibraryCase(product, square, /*head=*/false, /*invariant=*/false)};
}

}  // namespace sluice::gpu
