// Tunes a table of the library's algorithms (engine/cuda/algorithm_table.h) for the device.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cuda/algorithm_table.h"
#include "loadtest/gpu/cases.h"

namespace sluice::gpu {

// Parses a shape such as "1024,2816", which may be followed by these words, each after a comma:
// bias, accumulate, head, relu, gelu_tanh, f32.
absl::StatusOr<DenseShape> ParseShape(const std::string& text);

// Returns the shapes of the benchmark's model, of the model in `folder` unless that is empty, and
// `more`, without duplicates.
absl::StatusOr<std::vector<DenseShape>> ShapesToTune(Scale scale, const std::string& folder,
                                                     const std::vector<DenseShape>& more);

// Returns the fastest family that passes for each shape: the reference by the time of the most
// rows, and the algorithms of the other classes by the time of their last number of rows. Spends
// about `seconds` on all shapes. Adds to bench.missing() the shapes without an algorithm and the
// shapes that the time did not suffice for. Returns FailedPrecondition if there is no library.
absl::StatusOr<AlgorithmTable> Tune(Bench& bench, Scale scale,
                                    const std::vector<DenseShape>& shapes, double seconds);

}  // namespace sluice::gpu
