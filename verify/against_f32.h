// `sluice verify --against f32`: measures the accuracy that a faster precision costs, on texts.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "engine/options.h"

namespace sluice::verify {

// Does all of `sluice verify --against f32`: reads the texts, one per line, computes both models
// and returns the report. The f32 model is the one in the directory `reference`, if given,
// otherwise the same model. Errors name the file.
absl::StatusOr<std::string> VerifyAgainstF32(const std::string& model_directory,
                                             const std::string& text, const CpuOptions& options,
                                             const ModelOptions& model,
                                             const std::string& reference = "");

}  // namespace sluice::verify
