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
  AttentionVariant variant{AttentionVariant::Kind::kOnePass};  // what serves; not kAuto
  std::string reason{};                                        // of the variant, in a sentence
};

// Ops of the graph with equal cascades, such as the same norm of every layer.
struct PlannedOp {
  std::string kind;         // "attention", "linear", ...
  std::string matrix = {};  // "4096 x 1024", inputs x outputs of a product with weights; or empty
  std::vector<size_t> ops;  // their places in the graph, ascending
  // These describe one op: its definition, or for attention the variant that serves.
  einsum::Cascade cascade;
  einsum::Analysis analysis;
  einsum::CostEstimate cost;
  einsum::Roofline roofline;           // of one op
  std::optional<double> seconds = {};  // measured, of all of them in a step
  // Kernels of one op: one for each einsum of its definition without fusion, and those that serve
  // it. A plan's kernels read sizes at run time, so that they are the same for static and dynamic
  // shapes.
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

// Returns the report. A value of a weight has the bytes that backends keep of the checkpoint's
// tensor, or without a checkpoint those of the dtype that the config names. Returns InvalidArgument
// for sizes below 1, and for a context that is longer than the model's longest sequence or shorter
// than the tokens.
absl::StatusOr<PlanReport> MakePlanReport(const Model& model,
                                          const einsum::DeviceDescription& device,
                                          const PlanInputs& inputs);

// Adds what each op of the graph took in a step, in seconds. Requires one value for each op.
void AddTimes(std::span<const double> seconds, PlanReport* report);

nlohmann::json PlanReportJson(const PlanReport& report);
// Returns the text of PlanReportJson, in which bytes that are not UTF-8 are replaced.
std::string PlanReportText(const PlanReport& report);
nlohmann::json AnalysisJson(const einsum::Analysis& analysis);

}  // namespace sluice
