#include "absl/strings/str_cat.h"
#include "kernels/cuda/diverse.h"
#include "kernels/cuda/logits.h"
#include "kernels/cuda/sample.h"
#include "loadtest/gpu/cases.h"

namespace sluice::gpu {
namespace {

namespace cuda = kernels::cuda;

struct DrawSizes {
  int32_t rows, n;

  int64_t elements() const { return int64_t{rows} * n; }
  // Returns the bytes of a case that reads or writes each element `times` times in total.
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
  // Whether a few logits of each row are far above the others, as a language model's often are.
  // Otherwise logits are uniform.
  bool peaked = false;
};

// Returns the logits of a draw: uniform, or one of kPeaked scattered tokens of each row has most of
// the mass.
const float* Logits(Bench& bench, const DrawSizes& s, bool peaked) {
  if (!peaked) return bench.Values<float>(s.elements());
  constexpr int32_t kPeaked = 16;
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> logits(s.elements());
  for (float& x : logits) x = 4 * uniform(bench.random());
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int32_t i = 0; i < kPeaked; ++i) {
      logits[r * s.n + static_cast<int64_t>(bench.random()() % s.n)] =
          16 - static_cast<float>(i) / 2;
    }
  }
  return bench.Put(logits);
}

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
    const cuda::SampleArgs args = {.logits = Logits(bench, s, draw.peaked),
                                   .n = s.n,
                                   .stride = s.n,
                                   .requests = bench.Put(requests),
                                   .rows = bench.Rows(s.rows),
                                   .max_top = 0,
                                   .scratch = bench.Room<uint64_t>(s.elements()),
                                   .first = nullptr,
                                   .outcomes = bench.Room<cuda::SampleOutcome>(s.rows),
                                   .top_ids = nullptr,
                                   .top_logprobs = nullptr,
                                   .top_scores = nullptr};
    return [=, &bench] { cuda::Sample(bench.stream(), args); };
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

// Chooses 16 of 64 items in each of 8 rows.
Case DiverseChoice(int32_t width, int32_t items) {
  constexpr int32_t kRows = 8, kPool = 64, kCount = 16;
  return KernelCase(
      {.part = "draws",
       .name = "diverse 16 of 64",
       .shape = absl::StrCat(kRows, " rows, items of ", width, " float"),
       .bytes = 2.0 * kRows * kPool * kCount * width * sizeof(float)},
      [=](Bench& bench) {
        std::vector<int32_t> ids(kRows * kPool);
        for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i) * 7 % items;
        const std::vector<cuda::DiverseRequest> requests(kRows, {0.5f, kPool, kCount});
        const cuda::DiverseArgs<float> args = {
            .weight = bench.Values<float>(int64_t{width} * items),
            .packed = false,
            .k = width,
            .columns = items,
            .requests = bench.Put(requests),
            .rows = bench.Rows(kRows),
            .first = nullptr,
            .outcomes = bench.Put(std::vector<cuda::SampleOutcome>(kRows)),
            .max_top = kPool,
            .factors = bench.Room<double>(kRows * cuda::DiverseFactor(kPool)),
            .top_ids = bench.Put(ids),
            .top_logprobs = bench.Values<float>(kRows * kPool),
            .top_scores = bench.Values<float>(kRows * kPool)};
        return [=, &bench] { cuda::Diversify(bench.stream(), args); };
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
  for (const Draw& draw :
       {Draw{"sampling, greedy", 0, 0, 1}, Draw{"sampling, top-k 50", 1, 50, 1},
        Draw{"sampling, top-k 50, top-p 0.9", 1, 50, 0.9f}, Draw{"sampling, top-p 0.9", 1, 0, 0.9f},
        Draw{"sampling, peaked, top-k 50", 1, 50, 1, true},
        Draw{"sampling, peaked, top-p 0.9", 1, 0, 0.9f, true}}) {
    cases.push_back(Sampling(sizes, draw));
  }
  cases.push_back(SoftCap(sizes));
  cases.push_back(gpu ? DiverseChoice(1024, 32768) : DiverseChoice(16, 200));
  return cases;
}

}  // namespace sluice::gpu
