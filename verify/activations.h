// The inputs of a model's projections for a sample of texts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "verify/agreement.h"

namespace sluice::verify {

// The rows that enter a projection.
struct EnteringRows {
  int64_t width = 0;
  std::vector<float> largest;  // [width] magnitudes, over all texts
  std::vector<float> rows;     // [.., width], evenly chosen among all

  int64_t count() const { return width == 0 ? 0 : std::ssize(rows) / width; }
};

// Computes the texts in f32 and returns the rows that enter each op of the graph. The entry of an
// op that is not a projection is empty.
absl::StatusOr<std::vector<EnteringRows>> CollectRows(std::shared_ptr<const Model> model,
                                                      std::span<const Text> texts);

}  // namespace sluice::verify
