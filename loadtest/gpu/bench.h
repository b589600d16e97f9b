// Times launches on a device: each case is captured once and replayed, so that what is timed is the
// device's work and not its launching.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/cuda/device.h"
#include "engine/model/config.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"

namespace sluice::gpu {

// One line of the report. Ideal bytes and operations: each input read once, each output written
// once.
struct Measurement {
  std::string part;   // "kernels" or "plans"
  std::string name;   // what was timed
  std::string shape;  // of what
  double value = 0;
  std::string unit = "us";
  double bytes = 0;           // 0: not bound by memory
  double operations = 0;      // 0: not bound by arithmetic
  bool tensor_cores = false;  // the operations are bfloat16 products
};

// The device's, with random contents, kept until the bench ends. Any failure of the device ends the
// process with the reason.
class Bench {
 public:
  // `seconds` are spent on each case.
  Bench(Device& device, double seconds);

  Device& device() { return device_; }
  DeviceStream& stream() { return *stream_; }
  std::mt19937_64& random() { return random_; }
  const std::vector<Measurement>& measurements() const { return measurements_; }

  // Uniform in [-1, 1).
  template <typename T>
  T* Values(int64_t n);
  template <typename T>
  T* Put(std::span<const T> values) {
    T* const device = Room<T>(std::ssize(values));
    Copy(device, values.data(), values.size_bytes());
    return device;
  }
  template <typename T>
  T* Put(const std::vector<T>& values) {
    return Put(std::span<const T>(values));
  }
  // All bits 0.
  template <typename T>
  T* Room(int64_t n) {
    return static_cast<T*>(Take(n * static_cast<int64_t>(sizeof(T))));
  }
  kernels::cuda::LiveRows Rows(int32_t count) { return {Put(std::vector<int32_t>{count}), count}; }

  // Times what `launch` queues on stream() and keeps it as `measurement` in microseconds. Then
  // releases all memory that was taken.
  void Time(Measurement measurement, const std::function<void()>& launch);
  // Releases all memory that was taken.
  void Release() { memory_.clear(); }
  // What could not be timed, and why. Likewise.
  void Missing(std::string what);
  const std::vector<std::string>& missing() const { return missing_; }
  void Keep(Measurement measurement) { measurements_.push_back(std::move(measurement)); }

  // Microseconds of one `run`, the median over batches of calls; `run` waits for its work.
  double MedianOf(const std::function<void()>& run) const;

 private:
  void* Take(int64_t bytes);
  void Copy(void* device, const void* host, size_t bytes);

  Device& device_;
  const double seconds_;
  std::unique_ptr<DeviceStream> stream_;
  std::vector<DeviceMemory> memory_;
  std::mt19937_64 random_{1};
  std::vector<Measurement> measurements_;
  std::vector<std::string> missing_;
};

// Ends the process with the reason unless `status` is OK.
void OrDie(const absl::Status& status);
template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  OrDie(value.status());
  return *std::move(value);
}

// Sizes for a GPU, whose cases exceed its caches, or for a rehearsal in the emulator.
enum class Scale { kGpu, kRehearsal };

// Of the plans.
ModelConfig BenchModel(Scale scale);

void TimeRowKernels(Bench& bench, Scale scale);      // embedding, norms, RoPE, activation, mix, XSA
void TimeProductKernels(Bench& bench, Scale scale);  // projections, attention
void TimeDrawKernels(Bench& bench, Scale scale);     // sampling, top-k, reductions, small algebra
// Captures, replay against eager launches, fill against a matched graph; of a random model.
void TimePlans(Bench& bench, Scale scale);

}  // namespace sluice::gpu
