#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/cuda/dense_layers.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/projection.h"
#include "loadtest/gpu/bench.h"

namespace sluice::gpu {
namespace {

namespace cuda = kernels::cuda;
using T = cuda::BFloat16;

struct ProjectionShape {
  int32_t groups, rows_each, k, n;
};

template <typename Out>
void TimeProjection(Bench& bench, const char* name, const ProjectionShape& s) {
  const int32_t rows = s.groups * s.rows_each;
  std::vector<kernels::RowGroup> groups;
  for (int32_t g = 0; g < s.groups; ++g) groups.push_back({g, g * s.rows_each, s.rows_each});
  std::vector<kernels::RowGroup> tiles(cuda::MaxRowTiles(rows, s.groups));
  const int32_t count = cuda::CutIntoRowTiles(groups, tiles.data());
  const int64_t x = int64_t{rows} * s.k, weight = int64_t{s.groups} * s.k * s.n;
  const int64_t out = int64_t{rows} * s.n;
  const cuda::ProjectionArgs<T, Out> args = {
      .x = bench.Values<T>(x),
      .weight = bench.Values<T>(weight),
      .bias = bench.Values<T>(s.n),
      .bias_stride = 0,
      .k = s.k,
      .n = s.n,
      .tiles = {bench.Put(tiles), bench.Put(std::vector<int32_t>{count}), count},
      .accumulate = false,
      .out = bench.Room<Out>(out)};
  bench.Time(
      {.part = "kernels",
       .name = name,
       .shape = absl::StrCat("L", s.groups, " B", s.rows_each, " ", s.k, " x ", s.n, " bf16"),
       .bytes = static_cast<double>((x + weight) * int64_t{sizeof(T)} + out * int64_t{sizeof(Out)}),
       .operations = 2.0 * rows * s.k * s.n,
       .tensor_cores = true},
      [&] { cuda::Project(bench.stream(), args); });
}

// Times the dense projection by the library, if one of its algorithms is invariant.
void TimeLibrary(Bench& bench, const ProjectionShape& s) {
  const absl::StatusOr<std::string> library = bench.device().DenseLibrary();
  if (!library.ok()) return;
  const int32_t rows = s.rows_each;
  const int64_t x = int64_t{rows} * s.k, weight = int64_t{s.k} * s.n, out = int64_t{rows} * s.n;
  const DenseArgs args = {.x = bench.Values<T>(x),
                          .weight = bench.Values<T>(weight),
                          .bias = bench.Values<T>(s.n),
                          .rows = rows,
                          .out = bench.Room<T>(out)};
  DenseLayers layers(bench.device(), bench.stream());
  const DenseLayer* const layer =
      ValueOrDie(layers.Find({.k = s.k, .n = s.n, .half = true, .bias = true, .accumulate = false},
                             args.weight, args.bias));
  Measurement measurement = {.part = "kernels",
                             .name = absl::StrCat("dense projection, ", *library),
                             .shape = absl::StrCat("L1 B", rows, " ", s.k, " x ", s.n, " bf16"),
                             .bytes = static_cast<double>((x + weight + out) * int64_t{sizeof(T)}),
                             .operations = 2.0 * rows * s.k * s.n,
                             .tensor_cores = true};
  if (layer == nullptr) {
    bench.Missing(measurement.name + ", " + measurement.shape + ": no algorithm is invariant");
    return;
  }
  bench.Time(measurement, [&] { layer->Run(args, bench.stream()); });
}

struct AttentionShape {
  const char* name;
  int32_t sequences, context, count;  // the step has the last `count` positions of each
  bool xsa;
};

struct Heads {
  int32_t q, kv, dim;
};

void TimeAttention(Bench& bench, const AttentionShape& s, const Heads& h) {
  const int32_t rows = s.sequences * s.count, group = h.q / h.kv;
  const int32_t pages_each = (s.context + cuda::kPageTokens - 1) / cuda::kPageTokens;
  std::vector<cuda::AttentionSequence> sequences;
  std::vector<int32_t> row_ids, pages;
  for (int32_t i = 0; i < s.sequences; ++i) {
    sequences.push_back({s.context - s.count, s.count, i * s.count, i * pages_each});
  }
  for (int32_t i = 0; i < rows; ++i) row_ids.push_back(i);
  for (int32_t i = 0; i < s.sequences * pages_each; ++i) pages.push_back(i);
  std::vector<cuda::AttentionTile> tiles(cuda::MaxAttentionTiles(rows, s.sequences, group));
  const int32_t tile_count = cuda::CutIntoAttentionTiles(sequences, group, tiles.data());
  const int64_t q = int64_t{rows} * h.q * h.dim;
  const int64_t cache = std::ssize(pages) * cuda::kPageTokens * h.kv * h.dim;
  const cuda::AttentionArgs<T> args = {
      .q = bench.Values<T>(q),
      .sequences = bench.Put(sequences),
      .rows = bench.Put(row_ids),
      .pages = bench.Put(pages),
      .tiles = {bench.Put(tiles), bench.Put(std::vector<int32_t>{tile_count}), tile_count},
      .kv = {bench.Values<T>(cache), bench.Values<T>(cache), h.kv, h.dim},
      .q_heads = h.q,
      .scale = static_cast<float>(1 / std::sqrt(h.dim)),
      .causal = true,
      .xsa = {.form = s.xsa ? kernels::XsaForm::kNorm : kernels::XsaForm::kOff},
      .out = bench.Room<T>(q)};
  const double seen =
      s.count * (s.context - (s.count - 1) / 2.0);  // (query, key) pairs of one sequence and head
  const int64_t kv = int64_t{2} * s.sequences * s.context * h.kv * h.dim;
  bench.Time({.part = "kernels",
              .name = s.name,
              .shape = absl::StrCat(s.sequences, " x ", s.count, " of ", s.context, ", ", h.q, "/",
                                    h.kv, " heads of ", h.dim, " bf16"),
              .bytes = static_cast<double>((2 * q + kv) * int64_t{sizeof(T)}),
              .operations = 4.0 * h.dim * h.q * s.sequences * seen,
              .tensor_cores = true},
             [&] { cuda::Attention(bench.stream(), args); });
}

}  // namespace

void TimeProductKernels(Bench& bench, Scale scale) {
  const bool gpu = scale == Scale::kGpu;
  // The weights are larger than a GPU's cache.
  for (int32_t rows : {1, 4, 8, 16, 64}) {
    TimeProjection<T>(
        bench, "position-wise projection",
        gpu ? ProjectionShape{256, rows, 512, 512} : ProjectionShape{3, std::min(rows, 4), 40, 72});
    if (!gpu) break;
  }
  for (int32_t rows : {64, 1024, 8192}) {
    TimeProjection<T>(bench, "dense projection",
                      gpu ? ProjectionShape{1, rows, 4096, 4096} : ProjectionShape{1, 20, 40, 72});
    TimeLibrary(bench, gpu ? ProjectionShape{1, rows, 4096, 4096} : ProjectionShape{1, 20, 40, 72});
    if (!gpu) break;
  }
  TimeProjection<float>(bench, "head projection",
                        gpu ? ProjectionShape{1, 32, 4096, 32768} : ProjectionShape{1, 4, 40, 72});
  const Heads heads = gpu ? Heads{32, 8, 128} : Heads{4, 2, 16};
  const int32_t context = gpu ? 2048 : 70, sequences = gpu ? 8 : 2;
  TimeAttention(bench, {"attention, prefill", sequences, context, context, false}, heads);
  TimeAttention(bench, {"attention, prefill, XSA", sequences, context, context, true}, heads);
  const int32_t decodes = gpu ? 64 : 3;
  TimeAttention(bench, {"attention, decode", decodes, context, 1, false}, heads);
  TimeAttention(bench, {"attention, decode, XSA", decodes, context, 1, true}, heads);
}

}  // namespace sluice::gpu
