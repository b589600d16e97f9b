#include "engine/cascade/plan_report.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "engine/einsum/lower.h"
#include "engine/einsum/text.h"
#include "nlohmann/json.hpp"

namespace sluice {
namespace {

using nlohmann::json;
using Kind = AttentionVariant::Kind;

// Returns the bytes of a value of the op's weights as backends keep them: one in int8, half of one
// and its part of the group's scale and zero point in int4; bf16 stays as it is stored, a table
// stays in any dtype, and all else is f32.
double WeightBytes(const GraphOp& op, const Model& model) {
  const auto stored = [&](const TensorPart& part, bool any_dtype) -> double {
    const auto tensor = model.checkpoint.tensors().find(part.name);
    if (tensor == model.checkpoint.tensors().end()) return model.config.stored_in_bf16 ? 2 : 4;
    const kernels::DType dtype = tensor->second.dtype;
    const bool kept = any_dtype || dtype == kernels::DType::kBF16;
    return kept ? static_cast<double>(kernels::DTypeBytes(dtype)) : 4;
  };
  const auto multiplied = [&](const auto& op_of_weights) -> double {
    const WeightPrecision precision = PrecisionOf(model, op_of_weights);
    switch (precision.quantization) {
      case Quantization::kNone:
        return stored(op_of_weights.weight, false);
      case Quantization::kInt8:
        return 1;
      case Quantization::kInt4:
        break;
    }
    const bool zeros = precision.stored && model.config.stored_quantization.zeros;
    return 0.5 + (sizeof(float) + (zeros ? 1 : 0)) / static_cast<double>(precision.group);
  };
  if (const auto* embed = std::get_if<EmbedOp>(&op)) return stored(embed->table, true);
  if (const auto* linear = std::get_if<LinearOp>(&op)) return multiplied(*linear);
  if (const auto* head = std::get_if<HeadOp>(&op)) return multiplied(*head);
  return 4;
}

int64_t EinsumsOf(const einsum::Cascade& cascade) {
  int64_t count = 0;
  for (const einsum::Statement& statement : cascade.statements) {
    const auto* const iteration = std::get_if<einsum::Iteration>(&statement);
    count += iteration == nullptr ? 1 : std::ssize(iteration->init) + std::ssize(iteration->body);
  }
  return count;
}

AttentionWork WorkOf(const ModelConfig& config, const StepSizes& step) {
  return {.sequences = step.sequences,
          .tokens = step.tokens,
          .context = step.context,
          .kv_heads = config.kv_heads,
          .group = config.heads / config.kv_heads,
          .head_dim = config.head_dim};
}

// Says what the other variants are estimated to take in the step.
std::string ComparedWith(const AttentionEstimates& estimates, const AttentionVariant& chosen) {
  const auto seconds = [&](const AttentionVariant& variant) {
    return std::ranges::find(estimates.variants, variant, &AttentionEstimate::variant)
        ->cost.seconds;
  };
  std::vector<std::string> others;
  for (const AttentionEstimate& other : estimates.variants) {
    if (other.variant == chosen) continue;
    others.push_back(absl::StrFormat("%s %.2f times", AttentionVariantName(other.variant),
                                     other.cost.seconds / seconds(chosen)));
  }
  return absl::StrCat(" In this step, by estimate, ", absl::StrJoin(others, ", "), " its time.");
}

std::string MatrixOf(const GraphOp& op, const Model& model) {
  const std::vector<GraphBuffer>& buffers = model.graph.buffers;
  if (const auto* linear = std::get_if<LinearOp>(&op)) {
    return absl::StrCat(buffers[linear->in].width, " x ", buffers[linear->out].width);
  }
  if (const auto* head = std::get_if<HeadOp>(&op)) {
    return absl::StrCat(buffers[head->in].width, " x ", model.config.vocab_size);
  }
  return "";
}

absl::StatusOr<PlanReport::OfAttention> PlanAttention(const AttentionOp& op,
                                                      const ModelConfig& config,
                                                      const einsum::DeviceDescription& device,
                                                      const PlanInputs& inputs) {
  PlanReport::OfAttention plan;
  einsum::AttentionShape shape = AttentionShapeOf(op, config, {.kv = KvPlaceOnCpu(config)});
  plan.count = 1;
  plan.xsa = op.xsa;
  const int32_t parts = inputs.variant.kind == Kind::kSplit ? inputs.variant.parts : 0;
  SLUICE_ASSIGN_OR_RETURN(plan.estimates,
                          EstimateAttention(shape, WorkOf(config, inputs.step), device, parts));
  const auto& variants = plan.estimates.variants;
  const bool divided =
      std::ranges::find(variants, inputs.variant, &AttentionEstimate::variant) != variants.end();
  plan.chosen = divided ? inputs.variant : AttentionVariant{Kind::kOnePass};
  plan.reason = inputs.reason;
  if (!divided) {
    absl::StrAppend(&plan.reason, " ", AttentionVariantName(inputs.variant),
                    " reads this step's keys in one pass, because threads have nothing to share.");
  }
  absl::StrAppend(&plan.reason, ComparedWith(plan.estimates, plan.chosen));
  if (op.xsa) {
    const int64_t with = EinsumsOf(plan.estimates.definition);
    shape.xsa = einsum::XsaForm::kNone;
    einsum::TermPool pool;
    const einsum::TermId term = einsum::AttentionTerm(pool, shape);
    plan.xsa_kernels_unfused = with - EinsumsOf(einsum::Lower(pool, {{"Y", term}}));
  }
  return plan;
}

// The weights and the pages of all ops are read once a step, so that they come from the level that
// holds them together.
void AddRooflines(PlanReport* report) {
  double resident = 0;
  for (const PlannedOp& op : report->ops) {
    for (const einsum::Home home : {einsum::Home::kWeight, einsum::Home::kKv}) {
      const einsum::Traffic& traffic = op.analysis.traffic;
      resident +=
          static_cast<double>(op.count()) * (traffic.LoadsOf(home) + traffic.StoresOf(home));
    }
  }
  for (PlannedOp& op : report->ops) {
    op.roofline = einsum::RooflineOf(op.cascade, op.analysis, report->device, resident);
  }
}

// Shows attention as it is computed, in place of its definition.
void TakeServedVariants(const Model& model, PlanReport* report) {
  for (PlannedOp& op : report->ops) {
    const auto* const attention = std::get_if<AttentionOp>(&model.graph.ops[op.ops.front()]);
    if (attention == nullptr) continue;
    const auto& plan =
        *std::ranges::find(report->attention, attention->xsa, &PlanReport::OfAttention::xsa);
    const AttentionEstimate& served =
        *std::ranges::find(plan.estimates.variants, plan.chosen, &AttentionEstimate::variant);
    op.cascade = served.cascade;
    op.analysis = served.analysis;
    op.cost = served.cost;
  }
}

// Returns what each einsum is: "P: GEMM t x d x e".
std::vector<std::string> Mappings(const einsum::Analysis& analysis) {
  std::vector<std::string> mappings;
  mappings.reserve(analysis.einsums.size());
  for (const einsum::EinsumFacts& facts : analysis.einsums) {
    mappings.push_back(absl::StrCat(facts.result, ": ", einsum::Describe(facts.roles)));
  }
  return mappings;
}

json TrafficJson(const einsum::Traffic& traffic) {
  json homes = json::object();
  for (const auto& [home, name] : kEnumNames<einsum::Home>) {
    homes[std::string(name)] = {{"loads", traffic.LoadsOf(home)},
                                {"stores", traffic.StoresOf(home)}};
  }
  return homes;
}

json AttentionJson(const PlanReport::OfAttention& plan) {
  json variants = json::array();
  for (const AttentionEstimate& estimate : plan.estimates.variants) {
    variants.push_back({{"variant", AttentionVariantName(estimate.variant)},
                        {"cascade", einsum::Print(estimate.cascade)},
                        {"analysis", AnalysisJson(estimate.analysis)},
                        {"work_items", estimate.cost.work_items},
                        {"usable_workers", estimate.cost.usable_workers},
                        {"estimated_seconds", estimate.cost.seconds}});
  }
  return {{"ops", plan.count},
          {"xsa", plan.xsa},
          {"xsa_kernels_unfused", plan.xsa_kernels_unfused},
          {"definition", einsum::Print(plan.estimates.definition)},
          {"definition_passes", plan.estimates.definition_passes},
          {"variants_found", plan.estimates.variants_found},
          {"variants_complete", plan.estimates.variants_complete},
          {"variants", std::move(variants)},
          {"chosen", AttentionVariantName(plan.chosen)},
          {"reason", plan.reason}};
}

}  // namespace

json AnalysisJson(const einsum::Analysis& analysis) {
  return {{"passes", analysis.passes},
          {"over", analysis.stream},
          {"footprint_bytes", analysis.footprint_bytes},
          {"bytes", TrafficJson(analysis.traffic)},
          {"flops", analysis.work.flops},
          {"exponentials", analysis.work.exponentials},
          {"divisions", analysis.work.divisions}};
}

StepSizes StepOf(const ModelConfig& config, const PlanQuery& query) {
  constexpr int64_t kDefaultContext = 4096;
  StepSizes step = {query.sequences, query.tokens, query.context};
  if (step.context == 0) step.context = std::min(kDefaultContext, config.max_positions);
  if (step.tokens == 0) step.tokens = config.causal ? 1 : step.context;
  return step;
}

absl::Status CheckStep(const ModelConfig& config, const StepSizes& step) {
  const auto check = [](const char* name, int64_t size, int64_t most, int64_t least = 1) {
    if (size >= least && size <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", size, ", must be in [", least, ", ", most, "]"));
  };
  constexpr int64_t kMostSequences = 65536;
  SLUICE_RETURN_IF_ERROR(check("sequences", step.sequences, kMostSequences));
  SLUICE_RETURN_IF_ERROR(check("context", step.context, config.max_positions));
  // Attention in both directions computes sequences whole.
  return check("tokens", step.tokens, step.context, config.causal ? 1 : step.context);
}

absl::StatusOr<PlanReport> MakePlanReport(const Model& model,
                                          const einsum::DeviceDescription& device,
                                          const PlanInputs& inputs) {
  SLUICE_RETURN_IF_ERROR(CheckStep(model.config, inputs.step));
  const einsum::Sizes sizes = SizesOf(model.config, inputs.step);
  PlanReport report = {.model = model.name,
                       .architecture = model.config.architecture,
                       .device = device,
                       .step = inputs.step,
                       .ops = {},
                       .attention = {}};
  for (size_t i = 0; i < model.graph.ops.size(); ++i) {
    const GraphOp& op = model.graph.ops[i];
    const CascadeOptions bytes = {.weight_bytes = WeightBytes(op, model),
                                  .kv = KvPlaceOnCpu(model.config)};
    einsum::Cascade cascade = CascadeOf(op, model.graph, model.config, bytes);
    auto known = std::ranges::find(report.ops, cascade, &PlannedOp::cascade);
    if (known == report.ops.end()) {
      PlannedOp planned;
      planned.kind = cascade.name;
      planned.matrix = MatrixOf(op, model);
      planned.cascade = std::move(cascade);
      SLUICE_ASSIGN_OR_RETURN(planned.analysis, einsum::Analyze(planned.cascade, sizes));
      planned.cost = einsum::Estimate(planned.cascade, planned.analysis, device);
      planned.kernels_unfused = EinsumsOf(planned.cascade);
      known = report.ops.insert(report.ops.end(), std::move(planned));
    }
    known->ops.push_back(i);
    report.kernels_unfused += known->kernels_unfused;
    report.kernels_static += known->kernels_static;
    report.kernels_dynamic += known->kernels_dynamic;
    const auto* const attention = std::get_if<AttentionOp>(&op);
    if (attention == nullptr) continue;
    const auto same =
        std::ranges::find(report.attention, attention->xsa, &PlanReport::OfAttention::xsa);
    if (same != report.attention.end()) {
      ++same->count;
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(PlanReport::OfAttention plan,
                            PlanAttention(*attention, model.config, device, inputs));
    report.attention.push_back(std::move(plan));
  }
  TakeServedVariants(model, &report);
  AddRooflines(&report);
  return report;
}

void AddTimes(std::span<const double> seconds, PlanReport* report) {
  for (PlannedOp& op : report->ops) {
    double sum = 0;
    for (const size_t i : op.ops) sum += seconds[i];
    op.seconds = sum;
  }
}

json PlanReportJson(const PlanReport& report) {
  json ops = json::array(), attention = json::array();
  for (const PlannedOp& op : report.ops) {
    const auto count = static_cast<double>(op.count());
    ops.push_back({{"kind", op.kind},
                   {"matrix", op.matrix},
                   {"ops", op.count()},
                   {"cascade", einsum::Print(op.cascade)},
                   {"mappings", Mappings(op.analysis)},
                   {"analysis", AnalysisJson(op.analysis)},
                   {"estimated_seconds", op.cost.seconds},
                   {"kernels",
                    {{"unfused", op.kernels_unfused},
                     {"static", op.kernels_static},
                     {"dynamic", op.kernels_dynamic}}},
                   {"roofline",
                    {{"bytes", count * op.roofline.bytes},
                     {"flops", count * op.analysis.work.flops},
                     {"seconds", count * op.roofline.seconds},
                     {"bound", op.roofline.bound}}}});
    if (op.seconds.has_value()) ops.back()["measured_seconds"] = *op.seconds;
  }
  for (const PlanReport::OfAttention& plan : report.attention) {
    attention.push_back(AttentionJson(plan));
  }
  return {{"model", report.model},
          {"architecture", report.architecture},
          {"device", json::parse(einsum::DeviceDescriptionJson(report.device))},
          {"step",
           {{"sequences", report.step.sequences},
            {"tokens", report.step.tokens},
            {"context", report.step.context}}},
          {"ops", std::move(ops)},
          {"attention", std::move(attention)},
          {"kernels",
           {{"unfused", report.kernels_unfused},
            {"static", report.kernels_static},
            {"dynamic", report.kernels_dynamic}}}};
}

std::string PlanReportText(const PlanReport& report) {
  return PlanReportJson(report).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace sluice
