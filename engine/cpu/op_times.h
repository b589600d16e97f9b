// Measures what each op of a step takes on this machine.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "engine/cascade/cascade_of.h"
#include "engine/cpu/cpu_model.h"
#include "engine/model/model.h"

namespace sluice {

// Returns the seconds of each op of the graph in a step of these sizes: medians over steps that are
// run for about a second, at least one. Tokens and the contents of the KV pages are made up; the
// last token of each sequence is sampled. The steps run in memory of their own, beside all else
// that the compute threads do.
//
// Requires that `executable` was loaded from `model`, and sizes for which CheckStep is OK. Returns
// InvalidArgument for more than kMostProfiledRows rows, and ResourceExhausted if the step takes
// more than half of the memory that is free.
absl::StatusOr<std::vector<double>> TimeOps(const CpuModel& executable, const Model& model,
                                            const StepSizes& step);

inline constexpr int64_t kMostProfiledRows = 65536;

}  // namespace sluice
