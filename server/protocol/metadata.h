// The protocol's descriptions of a served model. Pure.
#pragma once

#include <memory>
#include <vector>

#include "engine/model/model.h"
#include "proto/inference.pb.h"

namespace sluice {

// Lists only the outputs that are returned by default: clients such as perf_analyzer request every
// listed one. Shapes begin with the row dimension. `versions` are all that are served of the name.
inference::ModelMetadataResponse DescribeModel(const Model& model,
                                               const std::vector<int64_t>& versions);

// Shapes are without the row dimension, as Triton has it where max_batch_size > 0. `max_rows` are
// those of one request; the delay is BatchOptions::max_queue_delay_us.
inference::ModelConfig ConfigureModel(const Model& model, int32_t max_rows,
                                      int64_t max_queue_delay_us);

}  // namespace sluice
