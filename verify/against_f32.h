// `sluice verify --against f32`: what a faster precision costs a model, on texts.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "engine/options.h"

namespace sluice::verify {

// Does all of `sluice verify --against f32`: reads the texts, a line each, computes both and
// returns the report. What is computed in f32 is the model in the directory `reference`, if one is
// given. Errors name the file.
absl::StatusOr<std::string> VerifyAgainstF32(const std::string& model_directory,
                                             const std::string& text, const CpuOptions& options,
                                             const ModelOptions& model,
                                             const std::string& reference = "");

}  // namespace sluice::verify
