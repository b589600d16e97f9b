// Times launches on a device. Each case is captured once and replayed, so that the time is that of
// the device's work without launching.
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

// One line of the report. Bytes and operations are ideal: each input is read once and each output
// written once.
struct Measurement {
  std::string part;   // "kernels" or "plans"
  std::string name;   // the timed operation
  std::string shape;  // the shape of its operands
  double value = 0;
  std::string unit = "us";
  double bytes = 0;           // 0 if not bound by memory
  double operations = 0;      // 0 if not bound by arithmetic
  bool tensor_cores = false;  // whether the operations are bfloat16 products
};

// Allocates arrays on the device and times launches on it. A failure of the device ends the process
// with the reason.
class Bench {
 public:
  // Spends `seconds` on each case.
  Bench(Device& device, double seconds);

  Device& device() { return device_; }
  DeviceStream& stream() { return *stream_; }
  std::mt19937_64& random() { return random_; }
  const std::vector<Measurement>& measurements() const { return measurements_; }

  // Returns a new array of values uniform in [-1, 1).
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
  // Returns a new array of zero bits.
  template <typename T>
  T* Room(int64_t n) {
    return static_cast<T*>(Take(n * static_cast<int64_t>(sizeof(T))));
  }
  kernels::cuda::LiveRows Rows(int32_t count) { return {Put(std::vector<int32_t>{count}), count}; }

  // Times the work that `launch` queues on stream() and keeps it in microseconds as `measurement`.
  // Then releases all arrays.
  void Time(Measurement measurement, const std::function<void()>& launch);
  // Releases all arrays.
  void Release() { memory_.clear(); }
  // Records a case that could not be timed, with the reason. Then releases all arrays.
  void Missing(std::string what);
  const std::vector<std::string>& missing() const { return missing_; }
  void Keep(Measurement measurement) { measurements_.push_back(std::move(measurement)); }

  // Returns the microseconds of one `run`, the median over batches of calls. Requires that `run`
  // waits for its work.
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

// The sizes of the cases: for a GPU, larger than its caches, or for a rehearsal in the emulator.
enum class Scale { kGpu, kRehearsal };

// Returns the configuration of the model whose plans are timed.
ModelConfig BenchModel(Scale scale);

void TimeRowKernels(Bench& bench, Scale scale);      // embedding, norms, RoPE, activation, mix, XSA
void TimeProductKernels(Bench& bench, Scale scale);  // projections, attention
void TimeDrawKernels(Bench& bench, Scale scale);     // sampling, top-k, reductions, small algebra
// Times captures, replay against eager launches, and fill against a matched graph, with a random
// model.
void TimePlans(Bench& bench, Scale scale);

}  // namespace sluice::gpu
