#include "absl/strings/str_cat.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/mix.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/route.h"
#include "kernels/cuda/xsa.h"
#include "loadtest/gpu/cases.h"

namespace sluice::gpu {
namespace {

namespace cuda = kernels::cuda;
using T = cuda::BFloat16;

struct RowSizes {
  int32_t rows, dim, vocab, q_heads, kv_heads, head_dim;

  int64_t elements() const { return int64_t{rows} * dim; }
  std::string shape() const { return absl::StrCat(rows, " x ", dim, " bf16"); }
};

RowSizes SizesOf(Scale scale) {
  return scale == Scale::kGpu ? RowSizes{32768, 4096, 32768, 32, 8, 128}
                              : RowSizes{40, 64, 50, 4, 2, 16};
}

Measurement Moves(const char* name, const std::string& shape, int64_t elements) {
  return {.part = "rows",
          .name = name,
          .shape = shape,
          .bytes = static_cast<double>(elements) * sizeof(T)};
}

Case Copy(const RowSizes& s) {
  return KernelCase(Moves("copy (mix)", s.shape(), 2 * s.elements()), [=](Bench& bench) {
    const cuda::MixArgs<T> args = {.a = bench.Values<T>(s.elements()),
                                   .dim = s.dim,
                                   .rows = bench.Rows(s.rows),
                                   .out = bench.Room<T>(s.elements())};
    return [=, &bench] { cuda::Mix(bench.stream(), args); };
  });
}

Case GatedActivation(const RowSizes& s) {
  return KernelCase(Moves("activation, gated", s.shape(), 3 * s.elements()), [=](Bench& bench) {
    const cuda::ActivationArgs<T> args = {.activation = kernels::Activation::kSilu,
                                          .in = bench.Values<T>(s.elements()),
                                          .up = bench.Values<T>(s.elements()),
                                          .dim = s.dim,
                                          .rows = bench.Rows(s.rows),
                                          .out = bench.Room<T>(s.elements())};
    return [=, &bench] { cuda::Activate(bench.stream(), args); };
  });
}

Case RmsNormWithResidual(const RowSizes& s) {
  return KernelCase(Moves("RMSNorm with residual", s.shape(), 4 * s.elements()), [=](Bench& bench) {
    const cuda::NormArgs<T> args = {.x = bench.Values<T>(s.elements()),
                                    .residual = bench.Values<T>(s.elements()),
                                    .sum = bench.Room<T>(s.elements()),
                                    .weight = bench.Values<T>(s.dim),
                                    .eps = 1e-6f,
                                    .dim = s.dim,
                                    .rows = bench.Rows(s.rows),
                                    .out = bench.Room<T>(s.elements())};
    return [=, &bench] { cuda::RmsNorm(bench.stream(), args); };
  });
}

Case LayerNorm(const RowSizes& s) {
  return KernelCase(Moves("LayerNorm", s.shape(), 2 * s.elements()), [=](Bench& bench) {
    const cuda::NormArgs<T> args = {.x = bench.Values<T>(s.elements()),
                                    .weight = bench.Values<T>(s.dim),
                                    .bias = bench.Values<T>(s.dim),
                                    .eps = 1e-6f,
                                    .dim = s.dim,
                                    .rows = bench.Rows(s.rows),
                                    .out = bench.Room<T>(s.elements())};
    return [=, &bench] { cuda::LayerNorm(bench.stream(), args); };
  });
}

Case Embedding(const RowSizes& s) {
  return KernelCase(Moves("embedding", s.shape(), 2 * s.elements()), [=](Bench& bench) {
    std::uniform_int_distribution<int32_t> token(0, s.vocab - 1);
    std::vector<int32_t> ids(s.rows);
    for (int32_t& id : ids) id = token(bench.random());
    const cuda::EmbedArgs<T> args = {.table = bench.Values<T>(int64_t{s.vocab} * s.dim),
                                     .ids = bench.Put(ids),
                                     .dim = s.dim,
                                     .rows = bench.Rows(s.rows),
                                     .out = bench.Room<T>(s.elements())};
    return [=, &bench] { cuda::Embed(bench.stream(), args); };
  });
}

Case Rope(const RowSizes& s) {
  const int64_t q = int64_t{s.rows} * s.q_heads * s.head_dim;
  const int64_t kv = int64_t{s.rows} * s.kv_heads * s.head_dim;
  // The tables hold floats, which have twice the bytes, for half of the features, each with a sine
  // and a cosine.
  const int64_t tables = int64_t{2} * s.rows * s.head_dim;
  const Measurement measurement = Moves("RoPE and KV write",
                                        absl::StrCat(s.rows, " rows, ", s.q_heads, "/", s.kv_heads,
                                                     " heads of ", s.head_dim, " bf16"),
                                        2 * q + 4 * kv + tables);
  return KernelCase(measurement, [=](Bench& bench) {
    const int64_t angles = int64_t{s.rows} * (s.head_dim / 2);
    std::vector<int32_t> places(s.rows);
    for (int32_t i = 0; i < s.rows; ++i) places[i] = i;
    const int64_t pages = (s.rows + cuda::kPageTokens - 1) / cuda::kPageTokens * cuda::kPageTokens;
    const int64_t cache = pages * s.kv_heads * s.head_dim;
    const cuda::RopeArgs<T> args = {
        .cos = bench.Put(std::vector<float>(
            angles, 0.6f)),  // sines and cosines of a rotation, so that q keeps its magnitude
        .sin = bench.Put(std::vector<float>(angles, 0.8f)),
        .rotary_dim = s.head_dim,
        .positions = bench.Put(places),
        .kv_slots = bench.Put(places),
        .q_heads = s.q_heads,
        .q = bench.Values<T>(q),
        .k = bench.Values<T>(kv),
        .v = bench.Values<T>(kv),
        .kv = {bench.Room<T>(cache), bench.Room<T>(cache), s.kv_heads, s.head_dim},
        .rows = bench.Rows(s.rows)};
    return [=, &bench] { cuda::RopeAndStore(bench.stream(), args); };
  });
}

struct ExpertSizes {
  int32_t rows, dim, experts, chosen;

  int64_t elements() const { return int64_t{rows} * dim; }
  std::string shape() const {
    return absl::StrCat(rows, " rows, ", chosen, " of ", experts, " experts");
  }
  std::string shape_of_rows() const {
    return absl::StrCat(rows, " x ", dim, " bf16, ", chosen, " experts");
  }
};

// Returns a launch of the choice of experts by random logits.
Launch ChooseRandomly(Bench& bench, const ExpertSizes& s, cuda::Routes* routes) {
  const int64_t bytes = cuda::Routes::Bytes(s.rows, s.experts, s.chosen);
  *routes = cuda::Routes::At(bench.Room<char>(bytes), s.rows, s.experts, s.chosen);
  const cuda::RouteArgs args = {.logits = bench.Values<float>(int64_t{s.rows} * s.experts),
                                .softmax = kernels::RouteSoftmax::kOfChosen,
                                .rows = bench.Rows(s.rows),
                                .routes = *routes};
  return [=, &bench] { cuda::Route(bench.stream(), args); };
}

// The choice of experts, in two launches.
Case ChoiceOfExperts(const ExpertSizes& s) {
  const int64_t floats = int64_t{s.rows} * (s.experts + 3 * s.chosen);
  return KernelCase(Moves("choice of experts", s.shape(), 2 * floats), [=](Bench& bench) {
    cuda::Routes routes;
    return ChooseRandomly(bench, s, &routes);
  });
}

Case CopiesForExperts(const ExpertSizes& s) {
  const int64_t elements = (1 + s.chosen) * s.elements();
  return KernelCase(Moves("copies for experts", s.shape_of_rows(), elements), [=](Bench& bench) {
    cuda::Routes routes;
    ChooseRandomly(bench, s, &routes)();
    const cuda::CopyToPlacesArgs<T> args = {.x = bench.Values<T>(s.elements()),
                                            .dim = s.dim,
                                            .rows = bench.Rows(s.rows),
                                            .routes = routes,
                                            .out = bench.Room<T>(s.chosen * s.elements())};
    return [=, &bench] { cuda::CopyToPlaces(bench.stream(), args); };
  });
}

Case SumOfExperts(const ExpertSizes& s) {
  const int64_t elements = (1 + s.chosen) * s.elements();
  return KernelCase(Moves("sum of experts", s.shape_of_rows(), elements), [=](Bench& bench) {
    cuda::Routes routes;
    ChooseRandomly(bench, s, &routes)();
    const cuda::CombineArgs<T> args = {.x = bench.Values<T>(s.chosen * s.elements()),
                                       .bias = nullptr,
                                       .dim = s.dim,
                                       .accumulate = false,
                                       .rows = bench.Rows(s.rows),
                                       .routes = routes,
                                       .out = bench.Room<T>(s.elements())};
    return [=, &bench] { cuda::Combine(bench.stream(), args); };
  });
}

// Allocates inputs and returns a launch of XSA by itself.
Launch MakeExcludeSelf(Bench& bench, kernels::XsaForm form, int32_t rows, int32_t q_heads,
                       int32_t kv_heads, int32_t dim) {
  const int64_t y = int64_t{rows} * q_heads * dim, v = int64_t{rows} * kv_heads * dim;
  const cuda::ExcludeSelfArgs<T> args = {.y = bench.Values<T>(y),
                                         .v = bench.Values<T>(v),
                                         .q_heads = q_heads,
                                         .kv_heads = kv_heads,
                                         .head_dim = dim,
                                         .xsa = {.form = form},
                                         .rows = bench.Rows(rows),
                                         .out = bench.Room<T>(y)};
  return [=, &bench] { cuda::ExcludeSelf(bench.stream(), args); };
}

Case ExcludeSelf(kernels::XsaForm form, int32_t rows, int32_t q_heads, int32_t kv_heads,
                 int32_t dim) {
  const int64_t y = int64_t{rows} * q_heads * dim, v = int64_t{rows} * kv_heads * dim;
  const Measurement measurement = Moves(
      form == kernels::XsaForm::kNorm ? "XSA, norm form" : "XSA, squared form",
      absl::StrCat(rows, " rows, ", q_heads, "/", kv_heads, " heads of ", dim, " bf16"), 2 * y + v);
  return KernelCase(measurement, [=](Bench& bench) {
    return MakeExcludeSelf(bench, form, rows, q_heads, kv_heads, dim);
  });
}

}  // namespace

Launch XsaByItself(Bench& bench, const XsaShape& s, kernels::XsaForm form) {
  return MakeExcludeSelf(bench, form, s.sequences * s.tokens, s.q_heads, s.kv_heads, s.head_dim);
}

std::vector<Case> RowCases(Scale scale) {
  const bool gpu = scale == Scale::kGpu;
  const RowSizes sizes = SizesOf(scale);
  std::vector<Case> cases = {Copy(sizes),      GatedActivation(sizes), RmsNormWithResidual(sizes),
                             LayerNorm(sizes), Embedding(sizes),       Rope(sizes)};
  // The sizes of Qwen3-30B-A3B, in decode and in prefill.
  for (const int32_t rows : gpu ? std::vector<int32_t>{64, 8192} : std::vector<int32_t>{40}) {
    const ExpertSizes experts = {rows, gpu ? 2048 : 64, gpu ? 128 : 5, gpu ? 8 : 2};
    cases.push_back(ChoiceOfExperts(experts));
    cases.push_back(CopiesForExperts(experts));
    cases.push_back(SumOfExperts(experts));
  }
  for (const auto form : {kernels::XsaForm::kNorm, kernels::XsaForm::kSquared}) {
    cases.push_back(ExcludeSelf(form, gpu ? 64 * 1024 : 40, 8, 2, gpu ? 64 : 16));
    // One sequence whose values fit in the cache.
    if (gpu) cases.push_back(ExcludeSelf(form, 2048, 32, 4, 64));
  }
  return cases;
}

}  // namespace sluice::gpu
