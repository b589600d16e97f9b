// The computation of a model's steps, op by op: the report of `sluice plan`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cascades/attention_variants.h"
#include "cascades/cascade_of.h"
#include "engine/step_description.h"
#include "nlohmann/json_fwd.hpp"

namespace sluice {

// Ops of the graph with equal cascades and as many kernels, such as the same norm of every layer.
struct OpReport {
  std::string kind;         // "attention", "linear", ...
  std::string matrix = {};  // "4096 x 1024", inputs x outputs of a product with weights; or empty
  std::vector<size_t> ops;  // their places in the graph, ascending
  // These describe one op: its definition, or for attention the variant that serves.
  einsum::Cascade cascade;
  einsum::Analysis analysis;
  einsum::CostEstimate cost;
  einsum::Roofline roofline;           // of one op, at the ceilings of the report
  std::optional<double> seconds = {};  // measured, all such ops of a step together
  int64_t einsums = 0;                 // of the definition of one op
  int64_t kernels = 0;                 // that the plan runs for one op

  int64_t count() const { return std::ssize(ops); }
};

// A peak rate above the rate of the device's description, because an op was faster.
struct RaisedCeiling {
  std::string name;   // as einsum::Roofline::bound
  double factor = 1;  // above 1, times the rate of the description
  std::string op;     // the fastest op that the rate bounds
};

struct CascadeReport {
  std::string model;
  std::string architecture;
  einsum::DeviceDescription device;
  StepSizes step;
  std::vector<OpReport> ops;  // in the order of their first use
  struct OfAttention {
    int64_t count = 0;  // of attention ops with this shape
    bool xsa = false;
    // The einsums that XSA adds to the definition; the kernel computes them in its epilogue.
    int64_t xsa_einsums = 0;
    AttentionEstimates estimates;
    AttentionVariant chosen;
    std::string reason;
  };
  std::vector<OfAttention> attention;
  int64_t einsums = 0;  // of a step
  int64_t kernels = 0;
  std::vector<RaisedCeiling> raised;  // empty unless ops were measured
};

// Returns the report, with the measured times if the description has them. Estimates use the rates
// of `device`. If ops were measured, their rooflines use the highest rates seen: the rates of
// `device`, raised where an op was faster (einsum::RaiseCeilings). No op is therefore above its
// roofline. `kernels` has the kernels of each op, see CountKernels (engine/cpu/kernel_count.h).
// Only the name, config and graph of the model are used. Requires a step from CompleteStep, and one
// value for each op of the graph in `kernels` and in each list of the description.
absl::StatusOr<CascadeReport> MakeCascadeReport(const StepDescription& description,
                                                const einsum::DeviceDescription& device,
                                                const std::vector<int64_t>& kernels);

nlohmann::json CascadeReportJson(const CascadeReport& report);
// Returns the text of CascadeReportJson. Bytes that are not UTF-8 are replaced.
std::string CascadeReportText(const CascadeReport& report);
nlohmann::json AnalysisJson(const einsum::Analysis& analysis);

}  // namespace sluice
