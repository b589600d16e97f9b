// The engine's statistics and descriptions as messages of sluice.admin.v1. The functions are pure.
#pragma once

#include <span>

#include "engine/backend.h"
#include "engine/engine_stats.h"
#include "engine/options.h"
#include "proto/admin.pb.h"
#include "server/observe/bucket_history.h"

namespace sluice {

// The largest number of sizes in a histogram; longer histograms are coarsened.
inline constexpr size_t kMaxReportedSizes = 1024;

admin::v1::ModelBuckets DescribeBuckets(const ModelStats& stats, const BackendInfo& backend,
                                        const EngineOptions& options, MonoTime now);

// Adds the last hour (LastHour) to the description of `stats` by DescribeBuckets.
void AddLastHour(const HistoryStretch& hour, const ModelStats& stats,
                 admin::v1::ModelBuckets* model);

// Appends the intervals to a description of the model.
void AddHistory(std::span<const HistoryStretch> history, MonoTime now,
                admin::v1::ModelBuckets* model);

admin::v1::RunReviewResponse DescribeReview(const ReviewReport& report);

admin::v1::TryStrategiesResponse DescribeTrials(const StrategyTrials& trials);

admin::v1::DescribeStepResponse DescribeStepMessage(const StepDescription& description);

// Describes a request. Times are relative to its arrival.
admin::v1::ExplainResponse DescribeRequest(const Explanation& explanation);

}  // namespace sluice
