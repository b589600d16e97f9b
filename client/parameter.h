// Parameters of engine/parameter_table.h in the client's requests, from flags and from JSON lines.
// Only forms are checked here; the ranges are checked by the server, whose errors are precise.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/parameter_table.h"
#include "proto/inference.pb.h"

namespace sluice::client {

// Returns the parameters that the client has: `client_name` in JSON lines, --kebab-case as a flag.
const std::vector<const ParameterInfo*>& Parameters();

std::string FlagOf(const ParameterInfo& info);
// Returns what --help says: the table's sentences, how the flag is written, and the default.
std::string HelpOf(const ParameterInfo& info);

// Requires at least one of `values`, and only of kTexts more than one. Returns InvalidArgument that
// says what was expected.
absl::Status SetParameter(const ParameterInfo& info, absl::Span<const std::string> values,
                          inference::ModelInferRequest* request);

absl::Status SetParameterFromJson(const ParameterInfo& info, const nlohmann::json& value,
                                  inference::ModelInferRequest* request);

}  // namespace sluice::client
