#include "loadtest/gpu/bench.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace sluice::gpu {
namespace {

using kernels::cuda::BFloat16;
using kernels::cuda::Narrow;

constexpr size_t kPattern = 1 << 20;  // the number of elements that larger arrays repeat
constexpr int kLeastBatches = 5;
// Sets of inputs are added until their arrays have this many bytes, several times the largest
// cache, or until there are enough sets.
constexpr int64_t kRotatedBytes = 256 << 20;

double Seconds(const std::function<void()>& run, int calls) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Records launches without running them.
class Recorder final : public DeviceStream {
 public:
  Recorder(const DeviceInfo& device, std::vector<RecordedLaunch>* launches)
      : device_(device), launches_(launches) {}

  int32_t processors() const override { return device_.processors; }
  int32_t shared_bytes_limit() const override { return device_.shared_bytes_limit; }
  void Launch(const kernels::cuda::Kernel& kernel, const kernels::cuda::LaunchShape& shape,
              const void*, size_t) override {
    launches_->push_back({kernel, shape});
  }
  void CopyToDevice(void*, const void*, size_t) override {}
  void CopyToHost(void*, const void*, size_t) override {}
  void CopyOnDevice(void*, const void*, size_t) override {}
  void Fill(void*, uint8_t, size_t) override {}
  void Record(DeviceEvent&) override {}
  void Wait(DeviceEvent&) override {}
  void BeginCapture() override {}
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override {
    return absl::UnimplementedError("a device that only records launches cannot capture them");
  }
  void Run(DeviceGraph&) override {}
  absl::Status TakeStatus() override { return absl::OkStatus(); }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  const DeviceInfo device_;
  std::vector<RecordedLaunch>* const launches_;
};

}  // namespace

void OrDie(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

Bench::Bench(Device& device, double seconds, int32_t most_sets)
    : device_(device),
      info_(device.info()),
      seconds_(seconds),
      most_sets_(most_sets),
      launches_(nullptr),
      stream_(ValueOrDie(device.CreateStream())),
      random_(std::random_device{}()) {}

Bench::Bench(Device& device, std::vector<RecordedLaunch>* launches, const DeviceInfo& info)
    : device_(device),
      info_(info),
      seconds_(0),
      most_sets_(1),
      launches_(launches),
      stream_(std::make_unique<Recorder>(info, launches)) {}

void* Bench::Take(int64_t bytes) {
  // Launches may depend on which arrays exist. When launches are only recorded, no array is read.
  alignas(256) static std::byte nowhere;
  if (records()) return &nowhere;
  memory_.push_back(ValueOrDie(device_.Allocate(static_cast<size_t>(bytes))));
  taken_bytes_ += bytes;
  stream_->Fill(memory_.back().get(), 0, static_cast<size_t>(bytes));
  return memory_.back().get();
}

void Bench::Copy(void* device, const void* host, size_t bytes) {
  if (records()) return;
  const PinnedMemory staging = ValueOrDie(device_.AllocatePinned(bytes));
  std::memcpy(staging.get(), host, bytes);
  stream_->CopyToDevice(device, staging.get(), bytes);
  OrDie(stream_->Synchronize());
}

template <typename T>
T* Bench::Values(int64_t n) {
  T* const device = Room<T>(n);
  if (records()) return device;
  std::uniform_real_distribution<float> uniform(-1, 1);
  const int64_t drawn = std::min(static_cast<int64_t>(kPattern), n);
  const PinnedMemory staging = ValueOrDie(device_.AllocatePinned(drawn * sizeof(T)));
  for (int64_t i = 0; i < drawn; ++i) {
    static_cast<T*>(staging.get())[i] = Narrow<T>(uniform(random_));
  }
  for (int64_t at = 0; at < n; at += drawn) {
    const int64_t count = std::min(drawn, n - at);
    stream_->CopyToDevice(device + at, staging.get(), static_cast<size_t>(count) * sizeof(T));
  }
  OrDie(stream_->Synchronize());
  return device;
}

template float* Bench::Values<float>(int64_t n);
template BFloat16* Bench::Values<BFloat16>(int64_t n);

Bench::Times Bench::TimesOf(const std::function<void()>& run) const {
  run();
  const double once = std::max(Seconds(run, 1), 1e-7);
  const double batch = seconds_ / kLeastBatches;
  const int calls = std::max(1, static_cast<int>(std::min(batch / once, 1e4)));
  std::vector<double> times;
  double spent = 0;
  while (times.size() < kLeastBatches || (spent < seconds_ && times.size() < 100)) {
    const double seconds = Seconds(run, calls);
    spent += seconds;
    times.push_back(1e6 * seconds / calls);
    if (spent > 4 * seconds_) break;
  }
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  return {times[n / 2], times[n / 4], times[n - 1 - n / 4]};
}

void Bench::Release() {
  if (!memory_.empty()) OrDie(stream_->Synchronize());  // queued work uses it
  memory_.clear();
  taken_bytes_ = 0;
}

void Bench::Missing(std::string what) {
  missing_.push_back(std::move(what));
  Release();
}

void Bench::Clear() {
  measurements_.clear();
  missing_.clear();
}

void Bench::Time(Measurement measurement, const std::function<Launch()>& make) {
  if (records()) {
    make()();
    return;
  }
  std::vector<Launch> launches;
  do {
    launches.push_back(make());
    launches.back()();  // loads the code before the capture
    OrDie(stream_->Synchronize());
  } while (std::ssize(launches) < most_sets_ && taken_bytes_ < kRotatedBytes);
  stream_->BeginCapture();
  for (const Launch& launch : launches) launch();
  const std::unique_ptr<DeviceGraph> graph = ValueOrDie(stream_->EndCapture());
  // Several launches follow each other, so that the wait for the device adds little to each.
  constexpr int kLeastLaunches = 8;
  const auto sets = static_cast<int>(std::ssize(launches));
  const int runs = (kLeastLaunches + sets - 1) / sets;
  const Times times = TimesOf([&] {
    for (int i = 0; i < runs; ++i) stream_->Run(*graph);
    OrDie(stream_->Synchronize());
  });
  const double each = 1.0 / (runs * sets);
  measurement.value = times.median * each;
  measurement.low = times.low * each;
  measurement.high = times.high * each;
  measurement.sets = sets;
  Keep(std::move(measurement));
  Release();
}

}  // namespace sluice::gpu
