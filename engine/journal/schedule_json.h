// JSON forms of what the ladder file and the journal have in common.
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

// {"tokens": [..], "sequences": [..], "positions": [..]}, of one length.
nlohmann::json BucketsToJson(std::span<const Bucket> buckets);
// InvalidArgument unless `object` has these keys with what a Ladder accepts, at most 4096 buckets.
absl::StatusOr<Ladder> LadderFromJson(const nlohmann::json& object);

// {"law": [6], "moments": [36], "products": [6], "totals": [6], "buckets": as above, and of each bucket
// "correction": [..], "weight": [..], "seconds": [..]}.
nlohmann::json CostsToJson(const CostModel::State& costs);
absl::StatusOr<CostModel::State> CostsFromJson(const nlohmann::json& object);

// Keys as in the configuration file.
nlohmann::json BatchOptionsToJson(const BatchOptions& options);
absl::StatusOr<BatchOptions> BatchOptionsFromJson(const nlohmann::json& object);

// The string at `key`; InvalidArgument when there is none, or it is longer than 4096 bytes.
absl::StatusOr<std::string> StringFromJson(const nlohmann::json& object, const std::string& key);

}  // namespace sluice
