// The sums of states that a step needs: their memory on the host and on the device, and the work
// that computes and fetches them.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "engine/cuda/device.h"
#include "engine/step_batch.h"

namespace sluice {

template <typename T>
class StateSums {
 public:
  // The sums are of `width` values. The device outlives them.
  StateSums(Device* device, int64_t width) : device_(*device), width_(width) {}

  // Queues the sums of `states` [tokens, width], or of `trunk` if a sum is of the trunk. `rows`
  // lists the rows of each sequence. Allocates more memory if the batch has more sums than any
  // before. Requires that no earlier sums are queued.
  absl::Status Queue(const StepBatch& batch, const T* states, const T* trunk, const int32_t* rows,
                     DeviceStream* stream);
  // Queues the copy of the sums to the host.
  void Fetch(const StepBatch& batch, DeviceStream* stream);
  // Copies the fetched sums to the destinations in the batch.
  void Deliver(const StepBatch& batch) const;

  // Returns the size of the device memory; the pinned memory has the same size. May be called while
  // a step is queued.
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  absl::Status MakeRoom(int64_t sums);

  Device& device_;
  const int64_t width_;
  // The numbers of sums of the states and of the trunk, their ranges, and the sums.
  PinnedMemory on_host_;
  DeviceMemory on_device_;
  int64_t most_sums_ = 0;
  std::atomic<int64_t> bytes_ = 0;
};

}  // namespace sluice
