// Renders the table of `sluice buckets --history`. The function is pure.
#pragma once

#include <string>

#include "proto/admin.pb.h"

namespace sluice::client {

// Returns a table of at most 24 lines, the earliest first. Each line joins about the same number of
// the model's intervals.
std::string HistoryText(const admin::v1::ModelBuckets& model);

}  // namespace sluice::client
