// Writes a comparison as text for people.
#pragma once

#include <string>

#include "verify/comparison.h"

namespace sluice::verify {

// Returns a table of the largest error of each output by layer, and the first place where an output
// differs by more than `tolerance`.
std::string Report(const Comparison& comparison, int64_t layers, double tolerance);

// Does all of `sluice verify`: reads both files, compares them and returns the report. Sets `*same`
// to whether the model's answer was compared and all outputs are within the tolerance. Errors name
// the file.
absl::StatusOr<std::string> Verify(const std::string& model_directory, const std::string& golden,
                                   double tolerance, const CpuOptions& options, bool* same);

}  // namespace sluice::verify
