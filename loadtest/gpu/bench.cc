#include "loadtest/gpu/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace sluice::gpu {
namespace {

using kernels::cuda::BFloat16;
using kernels::cuda::Narrow;

constexpr size_t kPattern = 1 << 20;  // the number of elements that are repeated in larger arrays
constexpr int kLeastBatches = 5;

double Seconds(const std::function<void()>& run, int calls) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void OrDie(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

Bench::Bench(Device& device, double seconds)
    : device_(device), seconds_(seconds), stream_(ValueOrDie(device.CreateStream())) {}

void* Bench::Take(int64_t bytes) {
  memory_.push_back(ValueOrDie(device_.Allocate(static_cast<size_t>(bytes))));
  stream_->Fill(memory_.back().get(), 0, static_cast<size_t>(bytes));
  return memory_.back().get();
}

void Bench::Copy(void* device, const void* host, size_t bytes) {
  const PinnedMemory staging = ValueOrDie(device_.AllocatePinned(bytes));
  std::memcpy(staging.get(), host, bytes);
  stream_->CopyToDevice(device, staging.get(), bytes);
  OrDie(stream_->Synchronize());
}

template <typename T>
T* Bench::Values(int64_t n) {
  T* const device = Room<T>(n);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<T> pattern(std::min(kPattern, static_cast<size_t>(n)));
  for (T& value : pattern) value = Narrow<T>(uniform(random_));
  const PinnedMemory staging = ValueOrDie(device_.AllocatePinned(pattern.size() * sizeof(T)));
  std::memcpy(staging.get(), pattern.data(), pattern.size() * sizeof(T));
  for (int64_t at = 0; at < n; at += std::ssize(pattern)) {
    const auto count = std::min(std::ssize(pattern), n - at);
    stream_->CopyToDevice(device + at, staging.get(), static_cast<size_t>(count) * sizeof(T));
  }
  OrDie(stream_->Synchronize());
  return device;
}

template float* Bench::Values<float>(int64_t n);
template BFloat16* Bench::Values<BFloat16>(int64_t n);

double Bench::MedianOf(const std::function<void()>& run) const {
  run();
  const double once = std::max(Seconds(run, 1), 1e-7);
  const double batch = seconds_ / kLeastBatches;
  const int calls = std::max(1, static_cast<int>(std::min(batch / once, 1e4)));
  std::vector<double> times;
  double spent = 0;
  while (times.size() < kLeastBatches || (spent < seconds_ && times.size() < 100)) {
    const double seconds = Seconds(run, calls);
    spent += seconds;
    times.push_back(seconds / calls);
    if (spent > 4 * seconds_) break;
  }
  std::nth_element(times.begin(), times.begin() + (times.size() / 2), times.end());
  return times[times.size() / 2] * 1e6;
}

void Bench::Missing(std::string what) {
  missing_.push_back(std::move(what));
  memory_.clear();
}

void Bench::Time(Measurement measurement, const std::function<void()>& launch) {
  launch();  // loads the code before the capture
  OrDie(stream_->Synchronize());
  stream_->BeginCapture();
  launch();
  const std::unique_ptr<DeviceGraph> graph = ValueOrDie(stream_->EndCapture());
  // Several runs follow each other, so that waiting for the device costs each of them little.
  constexpr int kRuns = 8;
  measurement.value = MedianOf([&] {
                        for (int i = 0; i < kRuns; ++i) stream_->Run(*graph);
                        OrDie(stream_->Synchronize());
                      }) /
                      kRuns;
  Keep(std::move(measurement));
  memory_.clear();
}

}  // namespace sluice::gpu
