// Makes a table of the library's algorithms (engine/cuda/algorithm_table.h) for the device.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cuda/algorithm_table.h"
#include "loadtest/gpu/bench.h"

namespace sluice::gpu {

// "1024,2816" and then, each behind a comma: bias, accumulate, head, relu, gelu_tanh, f32.
absl::StatusOr<DenseShape> ParseShape(const std::string& text);

// Those of the benchmark's model, of the model in the folder, if one is named, and `more`; each
// once.
absl::StatusOr<std::vector<DenseShape>> ShapesToTune(Scale scale, const std::string& folder,
                                                     const std::vector<DenseShape>& more);

// Of each shape's algorithms that pass, the one of the least time, as a geometric mean over numbers
// of rows. Spends about so many seconds on all shapes; bench.missing() names those that it has no
// algorithm for, or that the time did not suffice for. FailedPrecondition: there is no library.
absl::StatusOr<AlgorithmTable> Tune(Bench& bench, Scale scale,
                                    const std::vector<DenseShape>& shapes, double seconds);

}  // namespace sluice::gpu
