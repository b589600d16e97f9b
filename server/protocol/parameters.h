// Reading the parameters of a request, by the table in engine/parameter_table.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/config.h"
#include "engine/request.h"
#include "google/protobuf/map.h"
#include "proto/inference.pb.h"

namespace sluice {

using ParameterMap = google::protobuf::Map<std::string, inference::InferParameter>;

// Reads parameters into `spec`, which has the defaults of its fields. Parameters that are absent
// leave their field alone, but for those whose default is the model's. Returns InvalidArgument
// ("parameter") for an unknown name, a value that is malformed or out of range, and values that
// contradict each other; it names the parameter, the value and the range. Does not look at whether
// the model has the tokenizer that stop texts need.
absl::Status ReadParameters(const ParameterMap& map, const ModelConfig& config, RequestSpec* spec);

// Returns the tokens that no row may draw, beside those that the request excludes row by row:
// tokens banned by a bias, and those that would end a row before min_tokens. Ascending, distinct.
std::vector<int32_t> ForbiddenTokens(const RequestSpec& spec, const ModelConfig& config);

}  // namespace sluice
