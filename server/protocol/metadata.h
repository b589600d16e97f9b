// What the protocol tells about a served model. Pure.
#pragma once

#include <memory>
#include <vector>

#include "engine/model/model.h"
#include "proto/inference.pb.h"

namespace sluice {

struct ModelTraits {
  int32_t max_rows;            // of one request
  int64_t max_queue_delay_us;  // of the batch former
};

// Lists only the outputs that are returned by default: clients such as perf_analyzer request every
// listed one. Shapes begin with the row dimension. `versions` are all that are served of the name.
inference::ModelMetadataResponse DescribeModel(const Model& model,
                                               const std::vector<int64_t>& versions);

// Shapes are without the row dimension, as Triton has it where max_batch_size > 0.
inference::ModelConfig ConfigureModel(const Model& model, const ModelTraits& traits);

}  // namespace sluice
