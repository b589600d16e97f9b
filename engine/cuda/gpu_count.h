// Interprets the CUDA runtime's results about the GPUs of a host, without its headers.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace sluice {

struct GpuAnswers {
  std::string error = "";   // of counting the GPUs; empty on success
  bool none_found = false;  // whether the error means that there is no GPU
  int count = 0;
  // The newest version of CUDA that the driver supports, and the version that this build needs:
  // 1000 times the major version and 10 times the minor one. 0 for no driver.
  int driver_version = 0;
  int runtime_version = 0;
};

// Returns the number of GPUs. Returns NotFound if the host has no driver, and FailedPrecondition
// with the reason if it has one that does not give access to its GPUs.
absl::StatusOr<int> CountOf(const GpuAnswers& answers);

}  // namespace sluice
