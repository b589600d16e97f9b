// The request parameters: names, ranges, defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/config.h"
#include "engine/request.h"
#include "google/protobuf/map.h"
#include "proto/inference.pb.h"

namespace sluice {

using ParameterMap = google::protobuf::Map<std::string, inference::InferParameter>;

// As proto/inference.proto describes them.
struct Parameters {
  std::optional<int64_t> max_tokens;  // absent: 1 where tokens are returned, else 0
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  std::optional<uint64_t> seed;
  int64_t num_top_logprobs = 0;
  int64_t priority = 0;
  int64_t timeout_us = 0;
  EditRules edits;
  StopRules stop;
  bool empty_final_response = false;
  StateRules states;                         // the model's where the request says nothing
  Truncation truncate = Truncation::kError;  // likewise
};

// Of all parameters, ascending; for documentation and its test.
std::span<const std::string_view> ParameterNames();

// InvalidArgument ("parameter") for an unknown name, a value that is malformed or out of range, and
// values that contradict each other; it names the parameter, the value and the range. Whether the
// model has the tokenizer that stop texts need is not looked at.
absl::StatusOr<Parameters> ReadParameters(const ParameterMap& map, const ModelConfig& config);

// What keeps tokens from being drawn, beside what the request excludes row by row: tokens banned by a
// bias, and those that would end a row before min_tokens; ascending, distinct.
std::vector<int32_t> ForbiddenTokens(const Parameters& parameters, const ModelConfig& config);

}  // namespace sluice
