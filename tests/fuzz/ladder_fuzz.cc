// Parses the ladder and the costs in a ladder file or in a line of a journal.
#include <cmath>

#include "base/json_reader.h"
#include "engine/journal/schedule_json.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

// Checks that the ladder chooses each bucket for a batch that just fits it, and that the ladder can
// be written and read back unchanged.
void CheckLadder(const Ladder& ladder) {
  for (const Bucket& bucket : ladder.buckets()) {
    const Bucket* chosen = ladder.Choose({.tokens = bucket.tokens,
                                          .sequences = bucket.sequences,
                                          .longest = bucket.padded() ? bucket.positions : 1});
    SLUICE_CHECK(chosen != nullptr && *chosen == bucket);
  }
  const auto again = LadderFromJson(BucketsToJson(ladder.buckets()));
  SLUICE_CHECK(again.ok() && *again == ladder);
}

void CheckCosts(const CostState& state, const Ladder& ladder) {
  CostModel costs;
  costs.Restore(state);
  for (const Bucket& bucket : ladder.buckets()) {
    const StepShape step{.bucket = bucket, .computed_tokens = bucket.tokens};
    const double estimate = costs.Estimate(step);
    SLUICE_CHECK(estimate >= 0 && estimate <= 1e5);
    costs.Observe(step, 1e-3);
    SLUICE_CHECK(std::isfinite(costs.Estimate(step)));
  }
  const double drain = costs.EstimateDrain(INT64_MAX, ladder.largest());
  SLUICE_CHECK(drain >= 0 && drain <= 1e9);
}

nlohmann::json At(const nlohmann::json& document, const char* key) {
  return document.contains(key) && document[key].is_object() ? document[key]
                                                             : nlohmann::json::object();
}

}  // namespace
}  // namespace sluice

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  const auto document = sluice::ParseJson(sluice::fuzz::AsText(data, size), 4);
  if (!document.ok() || !document->is_object()) return false;
  const auto ladder = sluice::LadderFromJson(sluice::At(*document, "ladder"));
  if (!ladder.ok()) {
    sluice::fuzz::CheckRefusal(ladder.status());
    return false;
  }
  sluice::CheckLadder(*ladder);
  const auto costs = sluice::CostsFromJson(sluice::At(*document, "costs"));
  if (costs.ok()) {
    sluice::CheckCosts(*costs, *ladder);
  } else {
    sluice::fuzz::CheckRefusal(costs.status());
  }
  return costs.ok();
}
