// The tables of `sluice buckets` and what `sluice optimize` tells. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "proto/admin.pb.h"

namespace sluice::client {

// As in the metrics: TOKENSxROWS of a packed bucket, ROWSxPOSITIONSp of a padded one.
std::string BucketName(const admin::v1::Bucket& bucket);

double Mebibytes(int64_t bytes);

// "[####....]" with `width` places.
std::string Bar(double share, int width);

// "3 ms", "2.5 s", "4 min", "2 h"; "never" when negative.
std::string AgeText(double seconds);

// A heading, a line for each bucket, totals.
std::string BucketsText(const admin::v1::ModelBuckets& model);

std::string OptimizeText(const admin::v1::OptimizeBucketsResponse& response);

}  // namespace sluice::client
