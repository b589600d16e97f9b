// `sluice verify --against f32`: measures the accuracy that a faster precision costs, on texts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "engine/options.h"
#include "verify/agreement.h"

namespace sluice::verify {

// Reads the texts, one per line, computes both models, and compares them. The f32 model is the one
// in the directory `reference`, if given, otherwise the same model. Errors name the file.
absl::StatusOr<Agreement> VerifyAgainstF32(const std::string& model_directory,
                                           const std::string& text, const CpuOptions& options,
                                           const ModelOptions& model,
                                           const std::string& reference = "");

// Returns the result as text for people, and as JSON.
std::string Report(const Agreement& agreement);
nlohmann::json ReportJson(const Agreement& agreement);

}  // namespace sluice::verify
