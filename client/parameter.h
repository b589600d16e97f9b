// Sets the parameters of engine/parameter_table.h in the client's requests, from flags and from
// JSON lines. The client checks only their form. The server checks the ranges and returns precise
// errors.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/parameter_table.h"
#include "proto/inference.pb.h"

namespace sluice::client {

// Returns the parameters that the client offers. Each is `client_name` in JSON lines, and a flag in
// --kebab-case.
const std::vector<const ParameterInfo*>& Parameters();

std::string FlagOf(const ParameterInfo& info);
// Returns the text for --help: the description from the table, the form of the flag and the
// default.
std::string HelpOf(const ParameterInfo& info);

// Requires at least one of `values`, and at most one unless the kind is kTexts. Returns
// InvalidArgument that names the expected form.
absl::Status SetParameter(const ParameterInfo& info, absl::Span<const std::string> values,
                          inference::ModelInferRequest* request);

absl::Status SetParameterFromJson(const ParameterInfo& info, const nlohmann::json& value,
                                  inference::ModelInferRequest* request);

}  // namespace sluice::client
