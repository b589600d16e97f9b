// Derives advice about a model's buckets from their statistics. The functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine_stats.h"
#include "proto/admin.pb.h"

namespace sluice::client {

// With fewer batches in the last hour, the figures of a model are too noisy for advice.
inline constexpr int64_t kBatchesToJudgeBy = 100;

struct Advice {
  std::string finding;  // the observation, with its figure
  std::string action;   // the change to make
};

// Returns the advice on the last hour, with the largest benefit first, or an empty list if nothing
// should change. Another ladder is advised only if `trials` of the model's recent traffic show a
// gain, and the advice includes the gain; without trials, no other ladder is advised.
// docs/buckets.md explains the rules and their limits.
std::vector<Advice> Advise(const admin::v1::ModelBuckets& model,
                           const StrategyTrials* trials = nullptr);

// Returns the advice as wrapped text.
std::string AdviceText(const std::vector<Advice>& advice);

}  // namespace sluice::client
