// A device with one stream, and host vectors to and from it, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
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

  // Memory for n values, all bits set: NaN where they are floating-point numbers, -1 where they are
  // integers. The emulator counts it as unwritten.
  template <typename T>
  T* Room(size_t n) {
    const size_t bytes = std::max<size_t>(1, n * sizeof(T));
    memory_.push_back(device_->Allocate(bytes).value());
    // The emulator has done so, and would take these bytes for written.
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
  template <typename T>
  void Write(T* device, std::span<const T> values) {
    stream_->CopyToDevice(device, values.data(), values.size_bytes());
    status_.Update(stream_->Synchronize());
  }
  // Waits for the stream; fails the test when something went wrong on it.
  template <typename T>
  std::vector<T> Get(const T* device, size_t n) {
    std::vector<T> values(n);
    stream_->CopyToHost(values.data(), device, n * sizeof(T));
    status_.Update(stream_->Synchronize());
    EXPECT_TRUE(status_.ok()) << status_;
    return values;
  }
  // Waits for the stream; what went wrong first.
  absl::Status Finish() {
    status_.Update(stream_->Synchronize());
    return status_;
  }
  // Releases what Room and Put gave.
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
