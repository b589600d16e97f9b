// Times launches on a device. The launches of a case are captured once and replayed, so that the
// measured time excludes the cost of launching.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/cuda/device.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"

namespace sluice::gpu {

// One line of the report. Bytes and operations are ideal: each input is read once and each output
// written once.
struct Measurement {
  std::string part;   // "ceilings", "rows", "products", "draws", "plans" or "steps"
  std::string name;   // the timed operation
  std::string shape;  // the shape of its operands
  double value = 0;   // the median
  std::string unit = "us";
  double bytes = 0;           // 0 if not bound by memory
  double operations = 0;      // 0 if not bound by arithmetic
  bool tensor_cores = false;  // whether the operations are products of bfloat16, or of int8
  bool int8 = false;          // whether they are products of int8, which has twice the rate
  double low = 0;             // the quartiles of the batches; 0 if the value is not a time
  double high = 0;
  int32_t sets = 0;  // the number of sets of inputs, used in turn

  std::string Id() const { return name + "; " + shape; }
};

// A launch that the device was given.
struct RecordedLaunch {
  kernels::cuda::Kernel kernel;
  kernels::cuda::LaunchShape shape;
};

// Queues one run of the timed work on Bench::stream().
using Launch = std::function<void()>;

// Allocates arrays on the device and times launches on it. If the device fails, the process ends
// with the reason.
class Bench {
 public:
  // Spends `seconds` on each case, and makes at most `most_sets` sets of its inputs.
  Bench(Device& device, double seconds, int32_t most_sets);
  // Makes a bench that allocates nothing and only records the launches that `device`, or a device
  // like `info`, would receive. `launches` must outlive it.
  Bench(Device& device, std::vector<RecordedLaunch>* launches)
      : Bench(device, launches, device.info()) {}
  Bench(Device& device, std::vector<RecordedLaunch>* launches, const DeviceInfo& info);

  Device& device() { return device_; }
  DeviceStream& stream() { return *stream_; }
  const DeviceInfo& info() const { return info_; }  // the device that the launches are made for
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

  // Calls `make`, which allocates fresh inputs and returns a launch, until the arrays are several
  // times larger than a cache. Times the launches in turn and stores the time of one, in
  // microseconds, in `measurement`. Then releases all arrays.
  void Time(Measurement measurement, const std::function<Launch()>& make);
  // Releases all arrays.
  void Release();
  // Records that a case could not be timed, with the reason. Then releases all arrays.
  void Missing(std::string what);
  const std::vector<std::string>& missing() const { return missing_; }
  void Keep(Measurement measurement) { measurements_.push_back(std::move(measurement)); }
  // Clears the measurements and the missing cases.
  void Clear();

  // Microseconds of one run, over batches of runs.
  struct Times {
    double median, low, high;
  };
  // Requires that `run` waits for its work.
  Times TimesOf(const std::function<void()>& run) const;

 private:
  bool records() const { return launches_ != nullptr; }
  void* Take(int64_t bytes);
  void Copy(void* device, const void* host, size_t bytes);

  Device& device_;
  const DeviceInfo info_;
  const double seconds_;
  const int32_t most_sets_;
  std::vector<RecordedLaunch>* const launches_;
  std::unique_ptr<DeviceStream> stream_;
  std::vector<DeviceMemory> memory_;
  int64_t taken_bytes_ = 0;
  std::mt19937_64 random_;
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

}  // namespace sluice::gpu
