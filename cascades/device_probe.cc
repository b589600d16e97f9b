#include "cascades/device_probe.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/cgroup.h"
#include "base/check.h"
#include "cascades/probe_runs.h"
#include "kernels/cpu/memory.h"

namespace sluice {
namespace {

constexpr int kTurns = 5;  // of ProbeDevice
constexpr int kRounds = 2;
// The size of the set that represents the memory, and its minimum if little memory is free.
constexpr int64_t kMemoryBytes = int64_t{128} << 20;
constexpr int64_t kLeastBytes = int64_t{8} << 20;
constexpr int64_t kMultiplySteps = 20'000;
constexpr int64_t kExponentialRounds = 50;
// The bytes that a run reads at least, so that its time is far above the clock's resolution.
constexpr int64_t kReadBytes = int64_t{4} << 20;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns the best result per second of several calls of `run`. Other processes only make runs
// slower.
template <typename Run>
double Rate(Run run) {
  constexpr double kLeastSeconds = 0.004;
  run();  // warms caches and clocks
  const double first = Now();
  double most = 0;
  for (int i = 0; i < kRounds || Now() - first < kLeastSeconds; ++i) {
    const double begin = Now();
    const double work = run();
    most = std::max(most, work / std::max(Now() - begin, 1e-9));
  }
  return most;
}

// If another process runs briefly on a thread's core, a launch takes thousands of times longer. The
// minimum of many launches is therefore more informative than their median.
double LeastLaunchSeconds(kernels::ThreadPool* pool) {
  constexpr int kLaunches = 50;
  constexpr double kMostSeconds = 0.02;  // for pools with more threads than there are cores
  double least = std::numeric_limits<double>::infinity();
  const double first = Now();
  for (int i = 0; i < kLaunches && (i == 0 || Now() - first < kMostSeconds); ++i) {
    const double begin = Now();
    RunLaunch(pool);
    least = std::min(least, Now() - begin);
  }
  return least;
}

// Returns the size of the data cache of a level as the first processor sees it, such as the part of
// the last level that its cores share. In a virtual machine sysconf may return the host's size.
int64_t CacheBytes(int level, int64_t otherwise) {
  constexpr int kMostCaches = 8;
  for (int i = 0; i < kMostCaches; ++i) {
    const std::string cache = absl::StrCat("/sys/devices/system/cpu/cpu0/cache/index", i, "/");
    const auto field = [&](const char* name) {
      return std::string(absl::StripAsciiWhitespace(ReadSystemFile(cache + name).value_or("")));
    };
    int64_t kib = 0;
    if (field("level") == absl::StrCat(level) && field("type") != "Instruction" &&
        absl::SimpleAtoi(absl::StripSuffix(field("size"), "K"), &kib) && kib > 0) {
      return kib << 10;
    }
  }
  return otherwise;
}

// Returns the size of the set that represents the memory.
int64_t SetBytes() {
  int64_t bytes = kMemoryBytes;
  const int64_t free = CgroupFreeMemory(ReadSystemFile).value_or(bytes * 4);
  while (bytes > kLeastBytes && bytes > free / 4) bytes /= 2;
  return bytes;
}

// The f32 profile with the same instructions.
kernels::Profile WithoutBf16(kernels::Profile profile) {
  return kernels::MultipliesInBf16(profile) ? kernels::Profile::kAvx512F32 : profile;
}

void TakeLarger(double rate, double* most) { *most = std::max(*most, rate); }

// Takes the better rates of `turn`.
void TakeBetter(const einsum::DeviceDescription& turn, einsum::DeviceDescription* best) {
  TakeLarger(turn.flops_per_second, &best->flops_per_second);
  TakeLarger(turn.bf16_flops_per_second, &best->bf16_flops_per_second);
  TakeLarger(turn.int8_flops_per_second, &best->int8_flops_per_second);
  TakeLarger(turn.exponentials_per_second, &best->exponentials_per_second);
  best->launch_seconds = std::min(best->launch_seconds, turn.launch_seconds);
  for (size_t i = 0; i < best->levels.size(); ++i) {
    TakeLarger(turn.levels[i].bytes_per_second, &best->levels[i].bytes_per_second);
    TakeLarger(turn.levels[i].worker_bytes_per_second, &best->levels[i].worker_bytes_per_second);
  }
}

}  // namespace

class DeviceProbe::Prober {
 public:
  explicit Prober(const kernels::Context& context)
      : context_(context),
        bytes_(SetBytes()),
        memory_(static_cast<char*>(kernels::AllocateMemory(bytes_))) {
    SLUICE_CHECK(memory_ != nullptr);
    std::memset(memory_.get(), 1, static_cast<size_t>(bytes_));
  }

  // Runs all measurements once.
  einsum::DeviceDescription Measure() const;

 private:
  // Returns the bytes per second at which `workers` threads read a set of `bytes` together.
  double ReadRate(int64_t bytes, int workers) const {
    const int64_t each = std::min(bytes, bytes_) / workers / kLine * kLine;
    const int64_t repeats = std::max<int64_t>(1, kReadBytes / each);
    return Rate([&] {
      context_.pool->ParallelFor(workers, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          for (int64_t r = 0; r < repeats; ++r) {
            RunReads(context_.profile, memory_.get() + i * each, each);
          }
        }
      });
      return static_cast<double>(each) * workers * repeats;
    });
  }

  einsum::DeviceDescription::Level Own(const char* name, int64_t bytes) const {
    // Half of the cache, because it holds other data too.
    return {.name = name,
            .bytes = static_cast<double>(bytes),
            .bytes_per_second = ReadRate(bytes / 2, 1)};
  }

  einsum::DeviceDescription::Level Shared(const char* name, int64_t bytes, int64_t set) const {
    return {.name = name,
            .bytes = static_cast<double>(bytes),
            .bytes_per_second = ReadRate(set, context_.pool->threads()),
            .shared = true,
            .worker_bytes_per_second = ReadRate(set, 1)};
  }

  static constexpr int64_t kLine = 64;
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };

  const kernels::Context context_;
  const int64_t bytes_;
  const std::unique_ptr<char, Free> memory_;
};

einsum::DeviceDescription DeviceProbe::Prober::Measure() const {
  const kernels::Profile profile = WithoutBf16(context_.profile);
  const int threads = context_.pool->threads();
  constexpr double kMostMemory = 1e15;
  const int64_t l1 = CacheBytes(1, 32 << 10);
  const int64_t l2 = std::max(CacheBytes(2, 1 << 20), 2 * l1);
  const int64_t l3 = std::max(CacheBytes(3, 32 << 20), 2 * l2);
  einsum::DeviceDescription device;
  device.name = absl::StrCat("cpu, ", threads, " threads, ",
                             std::string(kernels::ProfileName(context_.profile)));
  device.workers = threads;
  device.flops_per_second = Rate([&] { return RunMultiplyAdds(profile, kMultiplySteps); });
  if (kernels::MultipliesInBf16(context_.profile)) {
    device.bf16_flops_per_second =
        Rate([&] { return RunMultiplyAdds(context_.profile, kMultiplySteps); });
  }
  device.int8_flops_per_second =
      Rate([&] { return RunInt8MultiplyAdds(context_.profile, kMultiplySteps); });
  device.exponentials_per_second =
      Rate([&] { return RunExponentials(profile, kExponentialRounds); });
  device.launch_seconds = LeastLaunchSeconds(context_.pool);
  device.levels = {Own("L1", l1), Own("L2", l2), Shared("L3", l3, l3 / 2),
                   Shared("memory", static_cast<int64_t>(kMostMemory), kMemoryBytes)};
  return device;
}

DeviceProbe::DeviceProbe(const kernels::Context& context)
    : prober_(std::make_unique<Prober>(context)) {}

DeviceProbe::~DeviceProbe() = default;

void DeviceProbe::Measure() {
  einsum::DeviceDescription turn = prober_->Measure();
  if (device_.levels.empty()) {
    device_ = std::move(turn);
  } else {
    TakeBetter(turn, &device_);
  }
}

einsum::DeviceDescription ProbeDevice(const kernels::Context& context) {
  DeviceProbe probe(context);
  for (int i = 0; i < kTurns; ++i) probe.Measure();
  return probe.device();
}

absl::StatusOr<einsum::DeviceDescription> ReadDeviceFile(const std::string& path) {
  constexpr std::streamsize kMostBytes = 64 << 10;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  if (!file.is_open())
    return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
  file.read(text.data(), kMostBytes + 1);
  text.resize(static_cast<size_t>(file.gcount()));
  auto device = einsum::ReadDeviceDescription(text);
  if (device.ok()) return device;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", device.status().message()));
}

}  // namespace sluice
