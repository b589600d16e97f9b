// The cost model's description of a device, measured by a probe or read from a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::einsum {

struct DeviceDescription {
  // A cache, or the memory. Each worker has its own, or all workers share one.
  struct Level {
    std::string name;
    double bytes = 0;
    double bytes_per_second = 0;  // of one worker's own level, or of all workers together
    bool shared = false;
    // The most that one worker draws from a shared level; 0 if it can draw all of it.
    double worker_bytes_per_second = 0;

    bool operator==(const Level&) const = default;
  };

  std::string name;
  int32_t workers = 1;
  // The rates are for one worker. Products whose weights have two bytes a value, or one, have
  // separate rates. These are 0 if they are not faster than the f32 rates.
  double flops_per_second = 0;
  double bf16_flops_per_second = 0;
  double int8_flops_per_second = 0;
  double exponentials_per_second = 0;
  double launch_seconds = 0;       // to start all workers and wait for them
  std::vector<Level> levels = {};  // the nearest first; the last is the memory, which holds all

  bool operator==(const DeviceDescription&) const = default;
};

// Returns InvalidArgument, with the key and its range, if the text is not a valid description.
absl::StatusOr<DeviceDescription> ReadDeviceDescription(std::string_view json);

// Returns JSON that reads back as the same description.
std::string DeviceDescriptionJson(const DeviceDescription& device);

}  // namespace sluice::einsum
