#include "loadtest/bench/kernels/roofline.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "base/check.h"
#include "cascades/probe_runs.h"
#include "kernels/cpu/memory.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kTasks = 16;          // per thread, so that a late thread costs little
constexpr int64_t kPeakSteps = 20'000;  // per task
constexpr int64_t kReadBytes = int64_t{128} << 20;
constexpr int64_t kLine = 64;

// Calls run(task) for all tasks of the pool's threads and returns the sum of its results.
template <typename Run>
double RunTasks(const Context& context, Run run) {
  std::atomic<double> work = 0;
  context.pool->ParallelFor(kTasks * context.pool->threads(), 1,
                            [&](int64_t task, int64_t, int) { work += run(task); });
  return work;
}

}  // namespace

double Now(const Context& context) {
  timespec now;
  clock_gettime(context.pool->threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Series::Median() const {
  std::vector<double> sorted = seconds_;
  const auto middle = sorted.begin() + static_cast<int64_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

Roofline::Roofline(const Context& context, Peak peak)
    : context_(context), peak_(peak), memory_(static_cast<std::byte*>(AllocateMemory(kReadBytes))) {
  SLUICE_CHECK(memory_ != nullptr);
  std::fill_n(memory_.get(), kReadBytes, std::byte{1});
}

double Roofline::Multiply() const {
  const auto run = peak_ == Peak::kInt8 ? RunInt8MultiplyAdds : RunMultiplyAdds;
  return RunTasks(context_, [&](int64_t) { return run(context_.profile, kPeakSteps); });
}

double Roofline::Read() const {
  const int64_t tasks = kTasks * context_.pool->threads();
  const int64_t part = kReadBytes / tasks / kLine * kLine;
  return RunTasks(context_, [&](int64_t task) {
    return RunReads(context_.profile, memory_.get() + task * part, part);
  });
}

void Roofline::Probe() {
  const double start = Now(context_);
  flops_ = Multiply();
  const double middle = Now(context_);
  bytes_ = Read();
  multiply_.Add(middle - start);
  read_.Add(Now(context_) - middle);
}

void Roofline::Report(benchmark::State& state) const {
  state.counters[peak_ == Peak::kInt8 ? "peak_int8_GFLOPs" : "peak_GFLOPs"] =
      flops_ / multiply_.Median() / 1e9;
  state.counters["read_GBps"] = bytes_ / read_.Median() / 1e9;
}

void Roofline::Report(benchmark::State& state, const char* name, const Series& times, double flops,
                      double bytes) const {
  const std::string prefix(name);
  const double seconds = times.Median();
  const double peak = flops_ / multiply_.Median();
  const double bandwidth = bytes_ / read_.Median();
  state.counters[prefix + "_us"] = 1e6 * seconds;
  state.counters[prefix + "_of_flops"] = flops / seconds / peak;
  state.counters[prefix + "_of_read"] = bytes / seconds / bandwidth;
}

}  // namespace sluice::kernels
