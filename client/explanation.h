// Renders the text of `sluice explain`. The function is pure.
#pragma once

#include <string>

#include "proto/admin.pb.h"

namespace sluice::client {

// Returns a description of the request's scheduling: each decision to wait, and each step that ran
// it.
std::string ExplanationText(const std::string& request_id,
                            const admin::v1::ExplainResponse& response);

}  // namespace sluice::client
