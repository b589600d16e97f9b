// The autoscaling rule that is shipped, read from its manifest.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "loadtest/scale/autoscaler.h"

namespace sluice::loadtest {

// From a HorizontalPodAutoscaler (autoscaling/v2) or a KEDA ScaledObject with Prometheus triggers.
// An HPA's metrics are known by their names, a trigger by what its query selects; an HPA's windows
// are those of `adapter`, the rules of prometheus-adapter, which a ScaledObject needs not (""
// then). InvalidArgument names the file and what is not understood: nothing is left out in silence.
absl::StatusOr<AutoscalerRule> ReadScalingRule(const std::string& manifest,
                                               const std::string& adapter);

}  // namespace sluice::loadtest
