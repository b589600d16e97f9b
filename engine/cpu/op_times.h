// Measures how long each op of a step takes on this machine.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cpu/cpu_model.h"
#include "engine/model/model.h"
#include "engine/step_description.h"

namespace sluice {

// Returns the seconds of each op of the graph in a step of these sizes: medians over the steps that
// run in about a second, at least one. Tokens and the contents of the KV pages are made up. The
// last token of each sequence is sampled. The steps use their own memory and run concurrently with
// other work of the compute threads.
//
// `between`, if given, runs before the first step, after the last one and several times in between,
// so that the caller can measure the machine in turns with the ops. The step after it only warms
// the caches and is not counted, unless it is long.
//
// Requires that `executable` was loaded from `model`, and sizes from CompleteStep. Returns
// InvalidArgument for more than kMaxProfiledRows rows or more than kMaxMultiplyAdds, because other
// requests wait while an op runs. Returns ResourceExhausted if the step takes more than half of the
// free memory.
absl::StatusOr<std::vector<double>> TimeOps(const CpuModel& executable, const Model& model,
                                            const StepSizes& step,
                                            const std::function<void()>& between = {});

inline constexpr int64_t kMaxProfiledRows = 65536;
inline constexpr double kMaxMultiplyAdds = 2e12;  // some 10 s on one core with AVX-512

}  // namespace sluice
