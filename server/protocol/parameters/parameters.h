// Reads the parameters of a request according to the table in engine/parameter_table.h.
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

// Reads parameters into `spec`, whose fields hold their defaults. A field whose parameter is absent
// keeps its value, unless its default depends on the model. Returns InvalidArgument ("parameter"),
// naming the parameter, the value and the range, for an unknown name, a value that is malformed or
// out of range, and contradicting values. Does not check whether the model has the tokenizer that
// stop texts need.
absl::Status ReadParameters(const ParameterMap& map, const ModelConfig& config, RequestSpec* spec);

// Returns an error if the parameters leave no token to draw. ReadParameters checks this too.
absl::Status CheckChoice(const RequestSpec& spec, const ModelConfig& config);

// Returns the tokens that no row may draw, ascending and distinct: tokens banned by a bias, and
// tokens that would end a row before min_tokens. Tokens that the request excludes for single rows
// are not included.
std::vector<int32_t> ForbiddenTokens(const RequestSpec& spec, const ModelConfig& config);

}  // namespace sluice
