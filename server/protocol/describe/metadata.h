// The protocol's descriptions of a served model. The functions are pure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine_stats.h"
#include "engine/model/model.h"
#include "proto/inference.pb.h"
#include "server/protocol/tensors/outputs.h"

namespace sluice {

// Describes a model for ModelMetadata. Lists only the outputs that are returned by default, because
// clients such as perf_analyzer request every listed output. Shapes begin with the row dimension.
// `versions` are all served versions of the name.
inference::ModelMetadataResponse DescribeModel(const NamedModel& named,
                                               const std::vector<int64_t>& versions);

// Returns the memory limit of the model's ladder and its effect, in a sentence; empty without a
// limit.
std::string DescribeMemoryLimit(const ModelStats& stats);

// Describes a model for ModelConfig. Shapes lack the row dimension, as in Triton if max_batch_size
// > 0. `max_rows` is the limit of one request; `max_queue_delay_us` is
// BatchOptions::max_queue_delay_us.
inference::ModelConfig ConfigureModel(const NamedModel& named, int32_t max_rows,
                                      int64_t max_queue_delay_us);

}  // namespace sluice
