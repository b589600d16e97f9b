#include "cascades/cascade_report.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "cascades/einsum/lower.h"
#include "cascades/einsum/text.h"
#include "nlohmann/json.hpp"

namespace sluice {
namespace {

using nlohmann::json;
using Kind = AttentionVariant::Kind;

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

// Returns a sentence with the estimated times of the other variants in the step.
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

absl::StatusOr<CascadeReport::OfAttention> ReportAttention(const AttentionOp& op,
                                                           const ModelConfig& config,
                                                           const einsum::DeviceDescription& device,
                                                           const StepDescription& step) {
  CascadeReport::OfAttention plan;
  einsum::AttentionShape shape = AttentionShapeOf(op, config, {.kv = KvPlaceOnCpu(config)});
  plan.count = 1;
  plan.xsa = op.xsa;
  const int32_t parts = step.attention.kind == Kind::kSplit ? step.attention.parts : 0;
  SLUICE_ASSIGN_OR_RETURN(plan.estimates,
                          EstimateAttention(shape, WorkOf(config, step.step), device, parts));
  const auto& variants = plan.estimates.variants;
  const bool divided =
      std::ranges::find(variants, step.attention, &AttentionEstimate::variant) != variants.end();
  plan.chosen = divided ? step.attention : AttentionVariant{Kind::kOnePass};
  plan.reason = step.attention_reason;
  if (!divided) {
    absl::StrAppend(&plan.reason, " ", AttentionVariantName(step.attention),
                    " reads this step's keys in one pass, because threads have nothing to share.");
  }
  absl::StrAppend(&plan.reason, ComparedWith(plan.estimates, plan.chosen));
  if (op.xsa) {
    const int64_t with = EinsumsOf(plan.estimates.definition);
    shape.xsa = einsum::XsaForm::kNone;
    einsum::TermPool pool;
    const einsum::TermId term = einsum::AttentionTerm(pool, shape);
    plan.xsa_einsums = with - EinsumsOf(einsum::Lower(pool, {{"Y", term}}));
  }
  return plan;
}

std::string NameOfOp(const OpReport& op) {
  return op.matrix.empty() ? op.kind : absl::StrCat(op.kind, " ", op.matrix);
}

// Raises the rates of the device to the rates of the ops that were faster.
void RaiseCeilings(double resident, einsum::DeviceDescription* device, CascadeReport* report) {
  for (const OpReport& op : report->ops) {
    const double seconds = op.seconds.value_or(0) / static_cast<double>(op.count());
    if (seconds <= 0) continue;  // not measured, or too short for the clock
    for (const einsum::RaisedRate& rate :
         einsum::RaiseCeilings(op.cascade, op.analysis, resident, seconds, device)) {
      const auto known = std::ranges::find(report->raised, rate.name, &RaisedCeiling::name);
      const double before = known == report->raised.end() ? 1 : known->factor;
      RaisedCeiling& raised =
          known == report->raised.end() ? report->raised.emplace_back() : *known;
      raised = {rate.name, before * rate.factor, NameOfOp(op)};
    }
  }
}

// The weights and the pages of all ops are read once a step, so they come from the level that holds
// all of them.
void AddRooflines(CascadeReport* report) {
  double resident = 0;
  for (const OpReport& op : report->ops) {
    for (const einsum::Home home : {einsum::Home::kWeight, einsum::Home::kKv}) {
      const einsum::Traffic& traffic = op.analysis.traffic;
      resident +=
          static_cast<double>(op.count()) * (traffic.LoadsOf(home) + traffic.StoresOf(home));
    }
  }
  einsum::DeviceDescription device = report->device;
  RaiseCeilings(resident, &device, report);
  for (OpReport& op : report->ops) {
    op.roofline = einsum::RooflineOf(op.cascade, op.analysis, device, resident);
  }
}

// Shows attention as it is computed, instead of its definition.
void TakeServedVariants(const Model& model, CascadeReport* report) {
  for (OpReport& op : report->ops) {
    const auto* const attention = std::get_if<AttentionOp>(&model.graph.ops[op.ops.front()]);
    if (attention == nullptr) continue;
    const auto& plan =
        *std::ranges::find(report->attention, attention->xsa, &CascadeReport::OfAttention::xsa);
    const AttentionEstimate& served =
        *std::ranges::find(plan.estimates.variants, plan.chosen, &AttentionEstimate::variant);
    op.cascade = served.cascade;
    op.analysis = served.analysis;
    op.cost = served.cost;
  }
}

// Returns the role of each einsum: "P: GEMM t x d x e".
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

json AttentionJson(const CascadeReport::OfAttention& plan) {
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
          {"xsa_einsums", plan.xsa_einsums},
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

absl::StatusOr<CascadeReport> MakeCascadeReport(const StepDescription& description,
                                                const einsum::DeviceDescription& device,
                                                const std::vector<int64_t>& kernels) {
  const Model& model = *description.model;
  const einsum::Sizes sizes = SizesOf(model.config, description.step);
  CascadeReport report = {.model = model.name,
                          .architecture = model.config.architecture,
                          .device = device,
                          .step = description.step,
                          .ops = {},
                          .attention = {},
                          .raised = {}};
  for (size_t i = 0; i < model.graph.ops.size(); ++i) {
    const GraphOp& op = model.graph.ops[i];
    const CascadeOptions bytes = {.weight_bytes = description.weight_bytes[i],
                                  .kv = KvPlaceOnCpu(model.config)};
    einsum::Cascade cascade = CascadeOf(op, model.graph, model.config, bytes);
    auto known = std::ranges::find_if(report.ops, [&](const OpReport& each) {
      return each.cascade == cascade && each.kernels == kernels[i];
    });
    if (known == report.ops.end()) {
      OpReport added;
      added.kind = cascade.name;
      added.matrix = MatrixOf(op, model);
      added.cascade = std::move(cascade);
      SLUICE_ASSIGN_OR_RETURN(added.analysis, einsum::Analyze(added.cascade, sizes));
      added.cost = einsum::Estimate(added.cascade, added.analysis, device);
      added.einsums = EinsumsOf(added.cascade);
      added.kernels = kernels[i];
      known = report.ops.insert(report.ops.end(), std::move(added));
    }
    known->ops.push_back(i);
    if (!description.seconds.empty()) {
      known->seconds = known->seconds.value_or(0) + description.seconds[i];
    }
    report.einsums += known->einsums;
    report.kernels += known->kernels;
    const auto* const attention = std::get_if<AttentionOp>(&op);
    if (attention == nullptr) continue;
    const auto same =
        std::ranges::find(report.attention, attention->xsa, &CascadeReport::OfAttention::xsa);
    if (same != report.attention.end()) {
      ++same->count;
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(CascadeReport::OfAttention plan,
                            ReportAttention(*attention, model.config, device, description));
    report.attention.push_back(std::move(plan));
  }
  TakeServedVariants(model, &report);
  AddRooflines(&report);
  return report;
}

json CascadeReportJson(const CascadeReport& report) {
  json ops = json::array(), attention = json::array(), raised = json::array();
  for (const RaisedCeiling& each : report.raised) {
    raised.push_back({{"name", each.name}, {"factor", each.factor}, {"op", each.op}});
  }
  for (const OpReport& op : report.ops) {
    const auto count = static_cast<double>(op.count());
    ops.push_back({{"kind", op.kind},
                   {"matrix", op.matrix},
                   {"ops", op.count()},
                   {"cascade", einsum::Print(op.cascade)},
                   {"mappings", Mappings(op.analysis)},
                   {"analysis", AnalysisJson(op.analysis)},
                   {"estimated_seconds", op.cost.seconds},
                   {"einsums", op.einsums},
                   {"kernels", op.kernels},
                   {"roofline",
                    {{"bytes", count * op.roofline.bytes},
                     {"flops", count * op.analysis.work.flops},
                     {"seconds", count * op.roofline.seconds},
                     {"bound", op.roofline.bound}}}});
    if (op.seconds.has_value()) ops.back()["measured_seconds"] = *op.seconds;
  }
  for (const CascadeReport::OfAttention& plan : report.attention) {
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
          {"einsums", report.einsums},
          {"kernels", report.kernels},
          {"raised_ceilings", std::move(raised)}};
}

std::string CascadeReportText(const CascadeReport& report) {
  return CascadeReportJson(report).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace sluice
