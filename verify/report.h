// Does `sluice verify --golden`, and writes its result.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "verify/comparison.h"

namespace sluice::verify {

struct Verification {
  Comparison comparison;
  int64_t layers = 0;
  double tolerance = 0;

  bool same() const { return comparison.Same(tolerance); }
};

// Reads both files and compares them. Errors name the file.
absl::StatusOr<Verification> Verify(const std::string& model_directory, const std::string& golden,
                                    double tolerance, const CpuOptions& options);

// Returns a table of the largest error of each output by layer, and the first place where an output
// differs by more than the tolerance.
std::string Report(const Verification& verification);

// Returns the same as JSON. An infinite error is null.
nlohmann::json ReportJson(const Verification& verification);

}  // namespace sluice::verify
