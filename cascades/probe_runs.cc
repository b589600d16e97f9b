#include "cascades/probe_runs.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>

#include "cascades/probe_loops.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice {

namespace simd = kernels::simd;
using kernels::Profile;

double RunMultiplyAdds(Profile profile, int64_t steps) {
  const probe::MultiplyAdds multiply_adds = probe::MultiplyAddsOf(profile);
  multiply_adds.run(steps);
  return multiply_adds.flops * static_cast<double>(steps);
}

double RunInt8MultiplyAdds(Profile profile, int64_t steps) {
  const probe::MultiplyAdds multiply_adds = probe::Int8MultiplyAddsOf(profile);
  multiply_adds.run(steps);
  return multiply_adds.flops * static_cast<double>(steps);
}

double RunReads(Profile profile, const void* begin, int64_t bytes) {
  const int64_t part = bytes / probe::kStreams / probe::kLine * probe::kLine;
  probe::ReaderOf(profile)(static_cast<const std::byte*>(begin), part);
  return static_cast<double>(probe::kStreams * part);
}

double RunExponentials(Profile profile, int64_t rounds) {
  constexpr int64_t kRow = 1024;
  alignas(probe::kLine) std::array<float, kRow> scores, weights;
  for (int64_t i = 0; i < kRow; ++i) scores[i] = -0.01f * static_cast<float>(i);
  const simd::Table& table = simd::TableFor(profile);
  for (int64_t i = 0; i < rounds; ++i) {
    float sum = table.exp_sum(scores.data(), kRow, 0, 1, 0, weights.data());
    probe::Keep(sum);
  }
  return static_cast<double>(rounds * kRow);
}

void RunLaunch(kernels::ThreadPool* pool) {
  std::atomic<int> waiting = pool->threads();
  pool->ParallelFor(pool->threads(), 1, [&](int64_t, int64_t, int) {
    waiting.fetch_sub(1, std::memory_order_relaxed);
    while (waiting.load(std::memory_order_relaxed) > 0) std::this_thread::yield();
  });
}

}  // namespace sluice
