// The request parameters: names, ranges, defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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
  int64_t max_tokens = 1;
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
};

// InvalidArgument ("parameter") for an unknown name, a value that is malformed or out of range, and
// values that contradict each other; it names the parameter, the value and the range. Whether the
// model has the tokenizer that stop texts need is not looked at.
absl::StatusOr<Parameters> ReadParameters(const ParameterMap& map, const ModelConfig& config);

}  // namespace sluice
