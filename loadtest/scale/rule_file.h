// Reads the shipped autoscaling rule from its manifest.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "loadtest/scale/autoscaler.h"

namespace sluice::loadtest {

// Reads a HorizontalPodAutoscaler (autoscaling/v2) or a KEDA ScaledObject with Prometheus triggers.
// An HPA's metrics are recognised by their names, and a trigger by the metric in its query. The
// windows of an HPA come from `adapter`, the rules of prometheus-adapter. For a ScaledObject
// `adapter` is "". Returns InvalidArgument that names the file and anything that was not
// understood: no part is skipped silently.
absl::StatusOr<AutoscalerRule> ReadScalingRule(const std::string& manifest,
                                               const std::string& adapter);

}  // namespace sluice::loadtest
