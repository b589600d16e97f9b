// What the steps of a model compute, op by op: for `sluice plan` and the admin API.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/cascade/attention_variants.h"
#include "engine/cascade/cascade_of.h"
#include "engine/model/model.h"
#include "nlohmann/json_fwd.hpp"

namespace sluice {

struct PlanInputs {
  StepSizes step;
  // What the model is served with; kAuto stands for the variant with the lowest estimate.
  AttentionVariant variant{};
  // The bytes of weights are those of tensors that the model's checkpoint lacks.
  CascadeOptions bytes{};
};

// Ops of the graph with equal cascades, such as the same norm of every layer.
struct PlannedOp {
  std::string kind;         // "attention", "linear", ...
  std::vector<size_t> ops;  // their places in the graph, ascending
  einsum::Cascade cascade;
  einsum::Analysis analysis;  // of one op
  einsum::CostEstimate cost;
  einsum::Roofline roofline;           // of one op
  std::optional<double> seconds = {};  // measured, of all of them in a step
  std::vector<std::string> mappings;   // of each einsum: "GEMM t x d x e"
  // Kernels of one op: one for each einsum without fusion, and those that serve it. A plan's
  // kernels read sizes at run time, so that they are the same for static and dynamic shapes.
  int64_t kernels_unfused = 0;
  int64_t kernels_static = 1;
  int64_t kernels_dynamic = 1;

  int64_t count() const { return std::ssize(ops); }
};

struct PlanReport {
  std::string model;
  std::string architecture;
  einsum::DeviceDescription device;
  StepSizes step;
  std::vector<PlannedOp> ops;  // in the order of their first use
  struct OfAttention {
    int64_t count = 0;  // of attention ops with this shape
    bool xsa = false;
    // The einsums that XSA adds to the definition; the kernel computes them in its epilogue.
    int64_t xsa_kernels_unfused = 0;
    AttentionEstimates estimates;
    AttentionVariant chosen;
    std::string reason;
  };
  std::vector<OfAttention> attention;
  int64_t kernels_unfused = 0;  // of a step
  int64_t kernels_static = 0;
  int64_t kernels_dynamic = 0;
};

// Returns the sizes of the step, with those filled in that the query leaves out.
StepSizes StepOf(const ModelConfig& config, const PlanQuery& query);

// Returns InvalidArgument for sizes that are out of range; see MakePlanReport.
absl::Status CheckStep(const ModelConfig& config, const StepSizes& step);

// Returns the report. Returns InvalidArgument for sizes below 1, and for a context that is longer
// than the model's longest sequence or shorter than the tokens.
absl::StatusOr<PlanReport> MakePlanReport(const Model& model,
                                          const einsum::DeviceDescription& device,
                                          const PlanInputs& inputs);

// Adds what each op of the graph took in a step, in seconds. Requires one value for each op.
void AddTimes(std::span<const double> seconds, PlanReport* report);

nlohmann::json PlanReportJson(const PlanReport& report);
nlohmann::json AnalysisJson(const einsum::Analysis& analysis);

}  // namespace sluice
