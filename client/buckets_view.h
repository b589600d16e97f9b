// Renders the tables of `sluice buckets` and the text of `sluice review`. The functions are pure.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine_stats.h"
#include "proto/admin.pb.h"

namespace sluice::client {

// Returns the name that the metrics use: TOKENSxROWS of a packed bucket, ROWSxPOSITIONSp of a
// padded one.
std::string BucketName(const admin::v1::Bucket& bucket);

double Mebibytes(int64_t bytes);

// Returns a bar such as "[####....]" with `width` places between the brackets.
std::string Bar(double share, int width);

// Returns an age such as "3 ms", "2.5 s", "4 min" or "2 h", or "never" if it is negative.
std::string AgeText(double seconds);

// Returns whether the device computed rows without a useful token in the last hour, so that another
// ladder could waste less of its time.
bool WastedTime(const admin::v1::ModelBuckets& model);

// Returns a line with the share of the device's time that was wasted in the last hour, and, with
// `trials` of the model's recent traffic, the share that the best ladder would waste.
std::string WasteText(const admin::v1::ModelBuckets& model, const StrategyTrials* trials);

// Returns a heading, a line for each bucket and the totals. `trials` may be nullptr.
std::string BucketsText(const admin::v1::ModelBuckets& model,
                        const StrategyTrials* trials = nullptr);

std::string ReviewText(const admin::v1::RunReviewResponse& response);

}  // namespace sluice::client
