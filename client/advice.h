// Derives advice about a model's buckets from their statistics. The functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine_stats.h"
#include "proto/admin.pb.h"

namespace sluice::client {

// With fewer batches a model's figures mean nothing.
inline constexpr int64_t kBatchesToJudgeBy = 100;

struct Advice {
  std::string finding;  // the observation, with its figure
  std::string action;   // the change to make
};

// Returns the advice, the most rewarding first, or an empty list if nothing should change. With
// `trials` of the model's recent traffic, another ladder is advised only if it gains there, and the
// advice says by how much; without them, none is. The rules and their limits are explained in
// docs/buckets.md.
std::vector<Advice> Advise(const admin::v1::ModelBuckets& model,
                           const StrategyTrials* trials = nullptr);

// Returns the advice as wrapped text.
std::string AdviceText(const std::vector<Advice>& advice);

}  // namespace sluice::client
