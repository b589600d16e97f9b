// Measures this machine's processor for the cost model.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cascades/einsum/device_description.h"
#include "kernels/cpu/context.h"

namespace sluice {

// Measures the device in turns with other work, and keeps the best rates of all turns.
class DeviceProbe {
 public:
  // The context's pool outlives the probe. Takes 128 MiB, or less if little memory is free.
  explicit DeviceProbe(const kernels::Context& context);
  ~DeviceProbe();

  // Runs all measurements once, on the threads of the pool. This takes about 60 ms.
  void Measure();
  // Returns the best rates so far. Requires a measurement.
  const einsum::DeviceDescription& device() const { return device_; }

 private:
  class Prober;
  const std::unique_ptr<Prober> prober_;
  einsum::DeviceDescription device_;
};

// Returns the best of several measurements. They take about 300 ms in total. Multiply-adds in bf16
// are measured if the profile has them.
einsum::DeviceDescription ProbeDevice(const kernels::Context& context);

// Reads a file with the output of DeviceDescriptionJson. Errors name the file.
absl::StatusOr<einsum::DeviceDescription> ReadDeviceFile(const std::string& path);

}  // namespace sluice
