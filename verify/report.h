// What a comparison found, for people.
#pragma once

#include <string>

#include "verify/comparison.h"

namespace sluice::verify {

// A table of the largest error of each output by layer, and where the first differs that does by
// more than `tolerance`.
std::string Report(const Comparison& comparison, int64_t layers, double tolerance);

// The whole of `sluice verify`: reads both, compares, and gives the report. `*same` says whether
// all are within the tolerance. Errors name the file.
absl::StatusOr<std::string> Verify(const std::string& model_directory, const std::string& golden,
                                   double tolerance, const CpuOptions& options, bool* same);

}  // namespace sluice::verify
