// The effects of engine.ladder.memory_limit_bytes on a ladder, in sentences for the log, `sluice
// models` and `sluice doctor`. The functions are pure. Costs are estimated by the law of `costs`;
// without measured steps, the sentences leave them out.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/bucket.h"
#include "engine/ladder/ladder.h"
#include "engine/schedule/cost_model.h"

namespace sluice {

// The limit made the largest bucket smaller at start: `largest` instead of `wanted`, whose
// activations take `wanted_bytes`. The cost is the additional device time of a token in full
// batches.
std::string LoweredMaximumText(int64_t limit_bytes, const Bucket& wanted, int64_t wanted_bytes,
                               const Bucket& largest, const CostModel& costs);

// The limit left buckets out of the ladder at start. The cost is the additional device time of the
// step that loses most: a full step of a left-out bucket, which now runs in a bucket of `kept`.
// Requires that `left_out` is not empty.
std::string LeftOutText(int64_t limit_bytes, std::span<const Bucket> left_out, const Ladder& kept,
                        const CostModel& costs);

// The plan and the activations of the largest bucket take `needed_bytes`. Returns an empty string
// if the limit allows them, or if it is 0, which means no limit.
std::string UnmetLimitText(int64_t limit_bytes, const Bucket& largest, int64_t needed_bytes);

// Returns the sentences with a space between them. Either may be empty.
std::string JoinedSentences(const std::string& first, const std::string& second);

}  // namespace sluice
