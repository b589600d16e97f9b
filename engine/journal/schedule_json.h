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

// Returns {"tokens": [..], "sequences": [..], "positions": [..]}, lists of one length.
nlohmann::json BucketsToJson(std::span<const Bucket> buckets);
// Returns InvalidArgument unless `object` has these keys with the buckets of a Ladder, at most
// 4096.
absl::StatusOr<Ladder> LadderFromJson(const nlohmann::json& object);

// Returns {"law": [6], "moments": [36], "products": [6], "totals": [6], "buckets": as above with
// "correction": [..], "weight": [..], "seconds": [..]}.
nlohmann::json CostsToJson(const CostState& costs);
absl::StatusOr<CostState> CostsFromJson(const nlohmann::json& object);

// The keys, words and ranges are those of the options' specs. Numbers are plain; the keys of
// durations end in "_us".
nlohmann::json BatchOptionsToJson(const BatchOptions& options);
absl::StatusOr<BatchOptions> BatchOptionsFromJson(const nlohmann::json& object);

// Returns the string at `key`, or InvalidArgument if there is none or it is longer than 4096 bytes.
absl::StatusOr<std::string> StringFromJson(const nlohmann::json& object, const std::string& key);

}  // namespace sluice
