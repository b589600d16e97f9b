#include "client/analysis/plan_view.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text_wrap.h"
#include "client/table.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using nlohmann::json;

double Bytes(const json& analysis, const char* home) {
  const json& traffic = analysis.at("bytes").at(home);
  return traffic.at("loads").get<double>() + traffic.at("stores").get<double>();
}

std::string Passes(const json& analysis) { return absl::StrCat(analysis.at("passes").get<int>()); }

std::string Wrapped(const std::string& text) {
  return absl::StrJoin(Wrap(text, kTerminalColumns), "\n") + "\n";
}

std::string NameOfOp(const json& op) {
  const std::string matrix = op.at("matrix");
  return absl::StrCat(op.at("kind").get<std::string>(), matrix.empty() ? "" : " ", matrix);
}

std::string OpsText(const json& ops) {
  Table table(
      {"OP", "OPS", "PASSES", "WEIGHTS", "KV", "ARENA", "FLOPS", "EXP", "ESTIMATE", "KERNELS"});
  for (const json& op : ops) {
    const json& analysis = op.at("analysis");
    table.AddRow(
        {NameOfOp(op), absl::StrCat(op.at("ops").get<int64_t>()), Passes(analysis),
         Count(Bytes(analysis, "weight")), Count(Bytes(analysis, "kv")),
         Count(Bytes(analysis, "arena")), Count(analysis.at("flops")),
         Count(analysis.at("exponentials")), Time(op.at("estimated_seconds")),
         absl::StrCat(op.at("einsums").get<int64_t>(), " -> ", op.at("kernels").get<int64_t>())});
  }
  return table.Render();
}

// Returns the text of `part` as a share of `whole`, or "-" if that is 0.
std::string Percent(double part, double whole) {
  return whole > 0 ? absl::StrFormat("%.1f %%", 100 * part / whole) : "-";
}

std::string RaisedText(const json& raised) {
  if (raised.empty()) return "";
  const std::string all = absl::StrJoin(raised, ", ", [](std::string* out, const json& each) {
    absl::StrAppendFormat(out, "%s %.2f times (%s)", each.at("name").get<std::string>(),
                          each.at("factor").get<double>(), each.at("op").get<std::string>());
  });
  return absl::StrCat(
      "\n", Wrapped(absl::StrCat("Ops that were faster than a measured peak rate raised it: ", all,
                                 ". The rooflines use the raised rates.")));
}

// The times of the ops, if the report has them. The least possible time of an op follows from its
// bytes and operations at the highest rates of the device that were seen.
std::string ProfileText(const json& report) {
  const json& ops = report.at("ops");
  double step = 0, least = 0;
  for (const json& op : ops) {
    if (!op.contains("measured_seconds")) return "";
    const double seconds = op.at("measured_seconds").get<double>();
    step += seconds;
    if (seconds > 0) least += op.at("roofline").at("seconds").get<double>();
  }
  Table table(
      {"OP", "OPS", "TIME", "OF THE STEP", "BYTES", "BYTES/S", "FLOPS/S", "ROOFLINE", "BOUND BY"});
  const auto rate = [](double amount, double seconds) {
    return seconds > 0 ? Count(amount / seconds) : "-";
  };
  for (const json& op : ops) {
    const json& roofline = op.at("roofline");
    const double seconds = op.at("measured_seconds").get<double>();
    table.AddRow({NameOfOp(op), absl::StrCat(op.at("ops").get<int64_t>()), Time(seconds),
                  Percent(seconds, step), Count(roofline.at("bytes")),
                  rate(roofline.at("bytes"), seconds), rate(roofline.at("flops"), seconds),
                  Percent(roofline.at("seconds"), seconds), roofline.at("bound")});
  }
  return absl::StrCat("\nMeasured: ", Time(step), " for the ops of a step, ", Percent(least, step),
                      " of the roofline.\n\n", table.Render(),
                      RaisedText(report.at("raised_ceilings")));
}

std::string AttentionText(const json& plan) {
  std::string text = absl::StrFormat(
      "\nAttention%s, %d of the ops: %d passes as defined, %s%d equal variants found.\n\n",
      plan.at("xsa").get<bool>() ? " with XSA" : "", plan.at("ops").get<int64_t>(),
      plan.at("definition_passes").get<int>(),
      plan.at("variants_complete").get<bool>() ? "" : "at least ",
      plan.at("variants_found").get<int64_t>());
  Table table({"VARIANT", "PASSES", "FOOTPRINT", "BYTES", "FLOPS", "EXP", "WORK ITEMS", "WORKERS",
               "ESTIMATE", ""});
  for (const json& variant : plan.at("variants")) {
    const json& analysis = variant.at("analysis");
    const double bytes =
        Bytes(analysis, "weight") + Bytes(analysis, "kv") + Bytes(analysis, "arena");
    const std::string name = variant.at("variant");
    table.AddRow({name, Passes(analysis), Count(analysis.at("footprint_bytes")), Count(bytes),
                  Count(analysis.at("flops")), Count(analysis.at("exponentials")),
                  absl::StrCat(variant.at("work_items").get<int64_t>()),
                  absl::StrFormat("%.1f", variant.at("usable_workers").get<double>()),
                  Time(variant.at("estimated_seconds")),
                  name == plan.at("chosen").get<std::string>() ? "serves" : ""});
  }
  const std::string chosen = plan.at("chosen");
  absl::StrAppend(&text, table.Render(), "\n",
                  Wrapped(absl::StrCat(chosen, ": ", plan.at("reason").get<std::string>())));
  if (plan.at("xsa").get<bool>()) {
    absl::StrAppend(
        &text, Wrapped(absl::StrCat("XSA has ", plan.at("xsa_einsums").get<int64_t>(),
                                    " einsums; the attention kernel computes them in its epilogue, "
                                    "so they need no kernel of their own.")));
  }
  return text;
}

std::string RolesText(const einsum::Analysis& analysis) {
  Table table({"RESULT", "MAPPING", "ROLES", "PASS", "FLOPS"});
  for (const einsum::EinsumFacts& facts : analysis.einsums) {
    const std::string roles =
        absl::StrJoin(facts.roles.roles, ", ", [](std::string* out, const einsum::RankRole& role) {
          absl::StrAppend(out, role.rank, " ", std::string(NameOf(role.role)));
        });
    table.AddRow({facts.result, einsum::Describe(facts.roles), roles, absl::StrCat(facts.level + 1),
                  Count(facts.work.flops)});
  }
  return table.Render();
}

std::string SizesText(const einsum::Sizes& sizes) {
  if (sizes.empty()) return "";
  std::vector<std::string> all;
  for (const auto& [name, size] : sizes) all.push_back(absl::StrCat(name, " ", size));
  std::ranges::sort(all);
  return Wrapped(absl::StrCat("Sizes: ", absl::StrJoin(all, ", "), "."));
}

}  // namespace

std::string Count(double value) {
  constexpr const char* kPrefixes[] = {"", " k", " M", " G", " T", " P"};
  size_t prefix = 0;
  while (std::abs(value) >= 1000 && prefix + 1 < std::size(kPrefixes)) {
    value /= 1000;
    ++prefix;
  }
  return absl::StrFormat("%.4g%s", value, kPrefixes[prefix]);
}

std::string Time(double seconds) {
  if (seconds < 1e-3) return absl::StrFormat("%.3g us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.3g ms", seconds * 1e3);
  return absl::StrFormat("%.3g s", seconds);
}

std::string PlanText(const json& report) {
  const json& step = report.at("step");
  std::string text = absl::StrFormat(
      "%s (%s) on %s\nStep: %s of %d tokens; it computes the last %d of each\n\n",
      report.at("model").get<std::string>(), report.at("architecture").get<std::string>(),
      report.at("device").at("name").get<std::string>(),
      Counted(step.at("sequences").get<int64_t>(), "sequence", "sequences"),
      step.at("context").get<int64_t>(), step.at("tokens").get<int64_t>());
  absl::StrAppend(
      &text, OpsText(report.at("ops")), "\n",
      Wrapped(
          "For each op: passes over the rank that it reduces, bytes of weights, of KV pages and of "
          "activations (arena), operations, exponentials, and the einsums of its definition -> the "
          "kernels of the plan."),
      ProfileText(report));
  for (const json& plan : report.at("attention")) absl::StrAppend(&text, AttentionText(plan));
  absl::StrAppend(&text, "\n",
                  Wrapped(absl::StrFormat(
                      "The step has %d einsums. Its plan runs %d kernels: loops that the compute "
                      "threads share.",
                      report.at("einsums").get<int64_t>(), report.at("kernels").get<int64_t>())));
  return text;
}

std::string CascadeText(const einsum::CostedCascade& costed, const einsum::Sizes& sizes,
                        einsum::Notation notation) {
  const einsum::Analysis& analysis = costed.analysis;
  std::string text =
      absl::StrCat(einsum::Print(costed.cascade, notation), "\n", RolesText(analysis));
  const auto moved = [&](einsum::Home home) {
    return Count(analysis.traffic.LoadsOf(home) + analysis.traffic.StoresOf(home));
  };
  absl::StrAppend(&text, "\n", SizesText(sizes));
  absl::StrAppendFormat(
      &text,
      "%s over %s, footprint %s bytes.\nBytes: weights %s, KV %s, "
      "arena %s. Flops %s, exponentials %s, divisions %s.\nEstimate: %s on "
      "%.1f workers.\n",
      Counted(analysis.passes, "pass", "passes"), analysis.stream, Count(analysis.footprint_bytes),
      moved(einsum::Home::kWeight), moved(einsum::Home::kKv), moved(einsum::Home::kArena),
      Count(analysis.work.flops), Count(analysis.work.exponentials), Count(analysis.work.divisions),
      Time(costed.cost.seconds), costed.cost.usable_workers);
  for (const einsum::Hoist& hoist : analysis.hoists) {
    absl::StrAppendFormat(&text, "%s is computed once for all of %s; %s iterates over them.\n",
                          hoist.tensor, absl::StrJoin(hoist.ranks, ", "), hoist.reader);
  }
  return text;
}

json CascadeJson(const einsum::CostedCascade& costed, const einsum::Sizes& sizes) {
  json einsums = json::array();
  for (const einsum::EinsumFacts& facts : costed.analysis.einsums) {
    json roles = json::object();
    for (const einsum::RankRole& role : facts.roles.roles) roles[role.rank] = NameOf(role.role);
    einsums.push_back({{"result", facts.result},
                       {"mapping", einsum::Describe(facts.roles)},
                       {"roles", std::move(roles)},
                       {"pass", facts.level + 1},
                       {"points", facts.points},
                       {"flops", facts.work.flops}});
  }
  return {{"cascade", einsum::Print(costed.cascade)},
          {"sizes", std::map<std::string, int64_t>(sizes.begin(), sizes.end())},
          {"einsums", std::move(einsums)},
          {"analysis", AnalysisJson(costed.analysis)},
          {"usable_workers", costed.cost.usable_workers},
          {"estimated_seconds", costed.cost.seconds}};
}

std::string OptimizedText(const einsum::OptimizedCascade& found, const einsum::Sizes& sizes,
                          einsum::Notation notation) {
  const auto costs = [](const einsum::CostedCascade& costed) {
    return absl::StrCat(Counted(costed.analysis.passes, "pass", "passes"), " over ",
                        costed.analysis.stream, ", ", Time(costed.cost.seconds), " by estimate");
  };
  const std::string compared =
      absl::StrCat(found.complete ? "" : "at least ", found.compared, " equal cascades");
  std::string text = absl::StrCat("As given: ", costs(found.given), ".\n");
  if (found.cheapest.cascade == found.given.cascade) {
    absl::StrAppend(&text, "It is the cheapest of ", compared, ".\n\n");
  } else {
    absl::StrAppend(&text, "The cheapest of ", compared, ": ", costs(found.cheapest), ".\n\n");
  }
  return text + CascadeText(found.cheapest, sizes, notation);
}

json OptimizedJson(const einsum::OptimizedCascade& found, const einsum::Sizes& sizes) {
  return {{"given", CascadeJson(found.given, sizes)},
          {"cheapest", CascadeJson(found.cheapest, sizes)},
          {"compared", found.compared},
          {"complete", found.complete}};
}

std::string DerivationText(const std::vector<DerivationStep>& steps, einsum::Notation notation) {
  std::string text;
  std::set<std::string> declared;
  for (const DerivationStep& step : steps) {
    if (step.rule.empty()) {
      absl::StrAppend(&text, "Attention as defined: ");
    } else {
      absl::StrAppend(&text, "\nRule: ", step.rule, ".\nCondition: ", step.condition, ".\n");
    }
    absl::StrAppend(&text, Counted(step.passes, "pass", "passes"), " over the keys\n\n");
    for (const auto line : absl::StrSplit(einsum::Print(step.cascade, notation), '\n')) {
      const bool declares = absl::StartsWith(line, "cascade ") || absl::StartsWith(line, "rank ") ||
                            absl::StartsWith(line, "tensor ");
      if (line.empty() || (declares && !declared.insert(std::string(line)).second)) continue;
      absl::StrAppend(&text, "  ", line, "\n");
    }
  }
  return text;
}

}  // namespace sluice::client
