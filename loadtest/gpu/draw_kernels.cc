#include "absl/strings/str_cat.h"
#include "kernels/cuda/batched.h"
#include "kernels/cuda/logits.h"
#include "kernels/cuda/row_reduce.h"
#include "kernels/cuda/sample.h"
#include "kernels/cuda/top_k.h"
#include "loadtest/gpu/bench.h"

namespace sluice::gpu {
namespace {

namespace cuda = kernels::cuda;

struct DrawSizes {
  int32_t rows, n;

  int64_t elements() const { return int64_t{rows} * n; }
  // Returns the bytes of a case that reads or writes each element `times` times.
  Measurement Moves(const char* name, int times) const {
    return {.part = "kernels",
            .name = name,
            .shape = absl::StrCat(rows, " x ", n, " float"),
            .bytes = static_cast<double>(times * elements()) * sizeof(float)};
  }
};

void TimeSampling(Bench& bench, const DrawSizes& s) {
  struct Draw {
    const char* name;
    float temperature;
    int32_t top_k;
    float top_p;
  };
  for (const Draw& draw : {Draw{"sampling, greedy", 0, 0, 1}, Draw{"sampling, top-k 50", 1, 50, 1},
                           Draw{"sampling, top-k 50, top-p 0.9", 1, 50, 0.9f}}) {
    std::vector<cuda::SampleRequest> requests(s.rows);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i] = {.params = {.temperature = draw.temperature,
                                .top_k = draw.top_k,
                                .top_p = draw.top_p,
                                .seed = i},
                     .target = -1,
                     .num_top = 0};
    }
    const cuda::SampleArgs args = {.logits = bench.Values<float>(s.elements()),
                                   .n = s.n,
                                   .requests = bench.Put(requests),
                                   .rows = bench.Rows(s.rows),
                                   .max_top = 0,
                                   .scratch = nullptr,
                                   .outcomes = bench.Room<cuda::SampleOutcome>(s.rows),
                                   .top_ids = nullptr,
                                   .top_logprobs = nullptr};
    bench.Time(s.Moves(draw.name, 1), [&] { cuda::Sample(bench.stream(), args); });
  }
}

void TimeTopK(Bench& bench, const DrawSizes& s) {
  constexpr int32_t kK = 50;
  const int32_t k = std::min(kK, s.n);
  const std::vector<cuda::TopKSizes> sizes = {{s.rows, s.n, k}};
  const cuda::TopKArgs args = {.x = bench.Values<float>(s.elements()),
                               .row_stride = s.n,
                               .sizes = bench.Put(sizes),
                               .max_rows = s.rows,
                               .max_k = k,
                               .scratch = bench.Room<uint64_t>(int64_t{s.rows} * k),
                               .values = bench.Room<float>(int64_t{s.rows} * k),
                               .ids = bench.Room<int32_t>(int64_t{s.rows} * k)};
  bench.Time(s.Moves("top-k 50", 1), [&] { cuda::TopK(bench.stream(), args); });
}

void TimeReductions(Bench& bench, const DrawSizes& s) {
  const auto reduction = [&] {
    const std::vector<cuda::RowReduceSizes> sizes = {{s.rows, s.n}};
    return cuda::RowReduceArgs{.x = bench.Values<float>(s.elements()),
                               .row_stride = s.n,
                               .sizes = bench.Put(sizes),
                               .max_rows = s.rows,
                               .out = bench.Room<float>(s.rows)};
  };
  cuda::RowReduceArgs args = reduction();
  bench.Time(s.Moves("row maximum", 1), [&] { cuda::RowMax(bench.stream(), args); });
  args = reduction();
  bench.Time(s.Moves("row norm", 1), [&] { cuda::RowNorm(bench.stream(), args); });
  const cuda::LogitsArgs logits = {.logits = bench.Values<float>(s.elements()),
                                   .n = s.n,
                                   .soft_cap = 30,
                                   .excluded = bench.Room<int32_t>(1),
                                   .begin = bench.Room<int32_t>(int64_t{s.rows} + 1),
                                   .rows = bench.Rows(s.rows)};
  bench.Time(s.Moves("soft cap of logits", 2), [&] { cuda::FinishLogits(bench.stream(), logits); });
}

void TimeSmallAlgebra(Bench& bench, int32_t batch, int32_t n) {
  const int64_t elements = int64_t{batch} * n * n;
  const std::vector<cuda::MatMulSizes> products = {{batch, n, n, n}};
  const cuda::MatMulArgs product = {bench.Values<float>(elements), bench.Values<float>(elements),
                                    bench.Put(products), elements, bench.Room<float>(elements)};
  bench.Time({.part = "kernels",
              .name = "batched product",
              .shape = absl::StrCat(batch, " of ", n, " x ", n, " float"),
              .bytes = 3.0 * static_cast<double>(elements) * sizeof(float),
              .operations = 2.0 * static_cast<double>(elements) * n},
             [&] { cuda::BatchedMatMul(bench.stream(), product); });
  std::vector<float> definite(elements, 0.5f);
  for (int64_t i = 0; i < int64_t{batch} * n; ++i) {
    definite[i * n + i % n] = static_cast<float>(n);
  }
  const std::vector<cuda::CholeskySizes> roots = {{batch, n}};
  const cuda::CholeskyArgs root = {bench.Put(definite), bench.Put(roots), batch,
                                   bench.Room<float>(elements)};
  bench.Time({.part = "kernels",
              .name = "Cholesky",
              .shape = absl::StrCat(batch, " of ", n, " x ", n, " float"),
              .bytes = 2.0 * static_cast<double>(elements) * sizeof(float),
              .operations = static_cast<double>(elements) * n / 3},
             [&] { cuda::Cholesky(bench.stream(), root); });
}

}  // namespace

void TimeDrawKernels(Bench& bench, Scale scale) {
  const DrawSizes sizes = scale == Scale::kGpu ? DrawSizes{1024, 32768} : DrawSizes{3, 200};
  TimeSampling(bench, sizes);
  TimeTopK(bench, sizes);
  TimeReductions(bench, sizes);
  if (scale == Scale::kGpu) {
    TimeSmallAlgebra(bench, 64, 256);
  } else {
    TimeSmallAlgebra(bench, 2, 8);
  }
}

}  // namespace sluice::gpu
