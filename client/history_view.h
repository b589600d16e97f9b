// Renders the table of `sluice buckets --history`. The function is pure.
#pragma once

#include <string>

#include "proto/admin.pb.h"

namespace sluice::client {

// Returns a table of at most 24 lines, the earliest first, of which each stands for about as many
// of the model's stretches.
std::string HistoryText(const admin::v1::ModelBuckets& model);

}  // namespace sluice::client
