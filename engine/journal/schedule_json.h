// The JSON forms that the ladder file and the journal share.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/schedule/cost_model.h"

namespace sluice {

// Returns {"tokens": [..], "sequences": [..], "positions": [..]}, lists of equal length.
nlohmann::json BucketsToJson(std::span<const Bucket> buckets);
// Reads such an object. Returns InvalidArgument unless its buckets form a Ladder of at most 4096
// buckets.
absl::StatusOr<Ladder> LadderFromJson(const nlohmann::json& object);

// Returns {"rows": {"share": [..], "slice": [..], "least": [..]} as ComputedRows, "law": [6],
// "moments": [36], "products": [6], "totals": [6], "buckets": as above with "correction": [..],
// "weight": [..], "seconds": [..]}, and for a model with experts "experts": {"count", "chosen"}.
nlohmann::json CostsToJson(const CostState& costs);
absl::StatusOr<CostState> CostsFromJson(const nlohmann::json& object);

// Keys, words and ranges are the same as in the option specs. Numbers have no unit suffix; the keys
// of durations end in "_us".
nlohmann::json BatchOptionsToJson(const BatchOptions& options);
absl::StatusOr<BatchOptions> BatchOptionsFromJson(const nlohmann::json& object);

// Returns the string at `key`, or InvalidArgument if there is none or it is longer than 4096 bytes.
absl::StatusOr<std::string> StringFromJson(const nlohmann::json& object, const std::string& key);

}  // namespace sluice
