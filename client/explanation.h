// What `sluice explain` tells. Pure.
#pragma once

#include <string>

#include "proto/admin.pb.h"

namespace sluice::client {

// How a request was scheduled, in words: each decision to wait, and each step that carried it.
std::string ExplanationText(const std::string& request_id,
                            const admin::v1::ExplainResponse& response);

}  // namespace sluice::client
