#include "absl/strings/str_cat.h"
#include "kernels/cuda/batched.h"
#include "kernels/cuda/logits.h"
#include "kernels/cuda/row_reduce.h"
#include "kernels/cuda/sample.h"
#include "kernels/cuda/top_k.h"
#include "loadtest/gpu/cases.h"

namespace sluice::gpu {
namespace {

namespace cuda = kernels::cuda;

struct DrawSizes {
  int32_t rows, n;

  int64_t elements() const { return int64_t{rows} * n; }
  // Returns the bytes of a case that reads or writes each element `times` times.
  Measurement Moves(const char* name, int times) const {
    return {.part = "draws",
            .name = name,
            .shape = absl::StrCat(rows, " x ", n, " float"),
            .bytes = static_cast<double>(times * elements()) * sizeof(float)};
  }
};

struct Draw {
  const char* name;
  float temperature;
  int32_t top_k;
  float top_p;
};

Case Sampling(const DrawSizes& s, const Draw& draw) {
  return KernelCase(s.Moves(draw.name, 1), [=](Bench& bench) {
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
                                   .stride = s.n,
                                   .requests = bench.Put(requests),
                                   .rows = bench.Rows(s.rows),
                                   .max_top = 0,
                                   .scratch = bench.Room<uint64_t>(s.elements()),
                                   .first = nullptr,
                                   .outcomes = bench.Room<cuda::SampleOutcome>(s.rows),
                                   .top_ids = nullptr,
                                   .top_logprobs = nullptr};
    return [=, &bench] { cuda::Sample(bench.stream(), args); };
  });
}

Case TopK(const DrawSizes& s) {
  constexpr int32_t kK = 50;
  const int32_t k = std::min(kK, s.n);
  return KernelCase(s.Moves("top-k 50", 1), [=](Bench& bench) {
    const std::vector<cuda::TopKSizes> sizes = {{s.rows, s.n, k}};
    const cuda::TopKArgs args = {.x = bench.Values<float>(s.elements()),
                                 .row_stride = s.n,
                                 .sizes = bench.Put(sizes),
                                 .max_rows = s.rows,
                                 .max_k = k,
                                 .scratch = bench.Room<uint64_t>(int64_t{s.rows} * k),
                                 .values = bench.Room<float>(int64_t{s.rows} * k),
                                 .ids = bench.Room<int32_t>(int64_t{s.rows} * k)};
    return [=, &bench] { cuda::TopK(bench.stream(), args); };
  });
}

Case Reduction(const DrawSizes& s, bool norm) {
  return KernelCase(s.Moves(norm ? "row norm" : "row maximum", 1), [=](Bench& bench) {
    const std::vector<cuda::RowReduceSizes> sizes = {{s.rows, s.n}};
    const cuda::RowReduceArgs args = {.x = bench.Values<float>(s.elements()),
                                      .row_stride = s.n,
                                      .sizes = bench.Put(sizes),
                                      .max_rows = s.rows,
                                      .out = bench.Room<float>(s.rows)};
    return [=, &bench] { (norm ? cuda::RowNorm : cuda::RowMax)(bench.stream(), args); };
  });
}

Case SoftCap(const DrawSizes& s) {
  return KernelCase(s.Moves("soft cap of logits", 2), [=](Bench& bench) {
    const cuda::LogitsArgs args = {.logits = bench.Values<float>(s.elements()),
                                   .n = s.n,
                                   .stride = s.n,
                                   .soft_cap = 30,
                                   .excluded = bench.Room<int32_t>(1),
                                   .begin = bench.Room<int32_t>(int64_t{s.rows} + 1),
                                   .rows = bench.Rows(s.rows)};
    return [=, &bench] { cuda::FinishLogits(bench.stream(), args); };
  });
}

Case BatchedProduct(int32_t batch, int32_t n) {
  const int64_t elements = int64_t{batch} * n * n;
  return KernelCase({.part = "draws",
                     .name = "batched product",
                     .shape = absl::StrCat(batch, " of ", n, " x ", n, " float"),
                     .bytes = 3.0 * static_cast<double>(elements) * sizeof(float),
                     .operations = 2.0 * static_cast<double>(elements) * n},
                    [=](Bench& bench) {
                      const std::vector<cuda::MatMulSizes> sizes = {{batch, n, n, n}};
                      const cuda::MatMulArgs args = {
                          bench.Values<float>(elements), bench.Values<float>(elements),
                          bench.Put(sizes), elements, bench.Room<float>(elements)};
                      return [=, &bench] { cuda::BatchedMatMul(bench.stream(), args); };
                    });
}

Case CholeskyRoot(int32_t batch, int32_t n) {
  const int64_t elements = int64_t{batch} * n * n;
  return KernelCase({.part = "draws",
                     .name = "Cholesky",
                     .shape = absl::StrCat(batch, " of ", n, " x ", n, " float"),
                     .bytes = 2.0 * static_cast<double>(elements) * sizeof(float),
                     .operations = static_cast<double>(elements) * n / 3},
                    [=](Bench& bench) {
                      std::vector<float> definite(elements, 0.5f);
                      for (int64_t i = 0; i < int64_t{batch} * n; ++i) {
                        definite[i * n + i % n] = static_cast<float>(n);
                      }
                      const std::vector<cuda::CholeskySizes> sizes = {{batch, n}};
                      const cuda::CholeskyArgs args = {bench.Put(definite), bench.Put(sizes), batch,
                                                       bench.Room<float>(elements)};
                      return [=, &bench] { cuda::Cholesky(bench.stream(), args); };
                    });
}

}  // namespace

std::vector<Case> DrawCases(Scale scale) {
  const bool gpu = scale == Scale::kGpu;
  const Draw plain = {"sampling, plain temperature", 1, 0, 1};
  std::vector<Case> cases;
  const std::vector<DrawSizes> plain_sizes =
      gpu ? std::vector<DrawSizes>{{1, 128256}, {64, 32768}, {64, 128256}, {1024, 32768}}
          : std::vector<DrawSizes>{{3, 200}};
  for (const DrawSizes& sizes : plain_sizes) cases.push_back(Sampling(sizes, plain));
  const DrawSizes sizes = gpu ? DrawSizes{1024, 32768} : DrawSizes{3, 200};
  for (const Draw& draw : {Draw{"sampling, greedy", 0, 0, 1}, Draw{"sampling, top-k 50", 1, 50, 1},
                           Draw{"sampling, top-k 50, top-p 0.9", 1, 50, 0.9f},
                           Draw{"sampling, top-p 0.9", 1, 0, 0.9f}}) {
    cases.push_back(Sampling(sizes, draw));
  }
  cases.push_back(TopK(sizes));
  cases.push_back(Reduction(sizes, /*norm=*/false));
  cases.push_back(Reduction(sizes, /*norm=*/true));
  cases.push_back(SoftCap(sizes));
  cases.push_back(gpu ? BatchedProduct(64, 256) : BatchedProduct(2, 8));
  cases.push_back(gpu ? CholeskyRoot(64, 256) : CholeskyRoot(2, 8));
  return cases;
}

}  // namespace sluice::gpu
