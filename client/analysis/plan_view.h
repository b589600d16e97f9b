// Shows plans of models and cascades of einsums in a terminal.
#pragma once

#include <string>
#include <vector>

#include "cascades/cascade_report.h"
#include "cascades/derivation.h"
#include "cascades/einsum/interpreter.h"
#include "cascades/einsum/optimize_cascade.h"
#include "cascades/einsum/text.h"
#include "nlohmann/json_fwd.hpp"

namespace sluice::client {

// Returns a table of the ops, the variants of attention with their estimates, and the counts of
// kernels. `report` is a CascadeReportJson, so that local and server reports are shown in the same
// way.
std::string PlanText(const nlohmann::json& report);

// Returns the cascade, the roles of its einsums, its sizes, its memory traffic and footprint, and
// its operations.
std::string CascadeText(const einsum::CostedCascade& costed, const einsum::Sizes& sizes,
                        einsum::Notation notation);
nlohmann::json CascadeJson(const einsum::CostedCascade& costed, const einsum::Sizes& sizes);

// Returns the estimates of the given and of the cheapest cascade, then the latter.
std::string OptimizedText(const einsum::OptimizedCascade& found, const einsum::Sizes& sizes,
                          einsum::Notation notation);
nlohmann::json OptimizedJson(const einsum::OptimizedCascade& found, const einsum::Sizes& sizes);

// Returns each step with its rule, its number of passes and the resulting cascade.
std::string DerivationText(const std::vector<DerivationStep>& steps, einsum::Notation notation);

// Returns a count, such as bytes or flops, with a prefix: "1.5 M".
std::string Count(double value);
// Returns a duration with a unit: "1.5 ms".
std::string Time(double seconds);

}  // namespace sluice::client
