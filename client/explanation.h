// Renders the text of `sluice explain`. The function is pure.
#pragma once

#include <string>

#include "proto/admin.pb.h"

namespace sluice::client {

// Returns in words how a request was scheduled: each decision to wait, and each step that carried
// it.
std::string ExplanationText(const std::string& request_id,
                            const admin::v1::ExplainResponse& response);

}  // namespace sluice::client
