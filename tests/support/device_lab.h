// A device with one stream, and copies of host vectors to and from it, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/cuda/device.h"

namespace sluice {

class DeviceLab {
 public:
  explicit DeviceLab(std::unique_ptr<Device> device)
      : device_(std::move(device)), stream_(device_->CreateStream().value()) {}

  Device& device() { return *device_; }
  DeviceStream& stream() { return *stream_; }

  // Returns memory for n values with all bits set: NaN for floating-point numbers, -1 for integers.
  // The emulator counts it as unwritten.
  template <typename T>
  T* Room(size_t n) {
    const size_t bytes = std::max<size_t>(1, n * sizeof(T));
    memory_.push_back(device_->Allocate(bytes).value());
    // The emulator has filled it already, and would count these bytes as written.
    if (device_->info().architecture != "simt") stream_->Fill(memory_.back().get(), 0xFF, bytes);
    return static_cast<T*>(memory_.back().get());
  }
  template <typename T>
  T* Put(std::span<const T> values) {
    T* device = Room<T>(values.size());
    Write(device, values);
    return device;
  }
  template <typename T>
  T* Put(const std::vector<T>& values) {
    return Put(std::span<const T>(values));
  }
  // Returns nullptr for an empty vector.
  template <typename T>
  const T* PutOrNull(const std::vector<T>& values) {
    return values.empty() ? nullptr : Put(values);
  }
  template <typename T>
  void Write(T* device, std::span<const T> values) {
    if (values.empty()) return;
    const PinnedMemory staging = device_->AllocatePinned(values.size_bytes()).value();
    std::memcpy(staging.get(), values.data(), values.size_bytes());
    stream_->CopyToDevice(device, staging.get(), values.size_bytes());
    status_.Update(stream_->Synchronize());
  }
  // Waits for the stream and returns n values; fails the test if an operation on the stream failed.
  template <typename T>
  std::vector<T> Get(const T* device, size_t n) {
    std::vector<T> values(n);
    if (n == 0) return values;
    const absl::StatusOr<PinnedMemory> staging = device_->AllocatePinned(n * sizeof(T));
    status_.Update(staging.status());
    if (staging.ok()) {
      stream_->CopyToHost(staging->get(), device, n * sizeof(T));
      status_.Update(stream_->Synchronize());
      std::memcpy(values.data(), staging->get(), n * sizeof(T));
    }
    EXPECT_TRUE(status_.ok()) << status_;
    return values;
  }
  // Waits for the stream and returns its first error.
  absl::Status Finish() {
    status_.Update(stream_->Synchronize());
    return status_;
  }
  // Releases the memory that Room and Put returned.
  void Clear() {
    (void)Finish();
    memory_.clear();
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceStream> stream_;
  std::vector<DeviceMemory> memory_;
  absl::Status status_;
};

}  // namespace sluice
