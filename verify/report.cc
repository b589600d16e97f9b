#include "verify/report.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "engine/model/directory.h"

namespace sluice::verify {
namespace {

std::string LayerName(int32_t layer, int64_t layers) {
  if (layer < 0) return "embedding";
  return layer >= layers ? "head" : absl::StrCat("layer ", layer);
}

absl::Status Named(const std::string& file, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(file, ": ", status.message()));
}

}  // namespace

std::string Report(const Verification& verification) {
  const auto& [comparison, layers, tolerance] = verification;
  std::string text = absl::StrFormat("%-10s %-48s %s\n", "where", "output", "largest error");
  for (const Worst& worst : comparison.outputs) {
    absl::StrAppendFormat(&text, "%-10s %-48s %9.2e%s\n", LayerName(worst.layer, layers),
                          absl::CHexEscape(worst.name), worst.error,
                          worst.error <= tolerance ? "" : "  above the tolerance");
  }
  if (!comparison.unknown.empty()) {
    absl::StrAppend(&text, comparison.unknown.size(),
                    " outputs are not compared, because this program does not compute them "
                    "separately; the first is ",
                    absl::CHexEscape(comparison.unknown.front()), ".\n");
  }
  if (!comparison.unproven.empty()) {
    absl::StrAppend(&text, "The golden has no ", absl::StrJoin(comparison.unproven, " and no "),
                    ": the weights that only they depend on are not checked.\n");
  }
  const Worst* first = comparison.FirstAbove(tolerance);
  if (!comparison.missing_answer.empty()) {
    absl::StrAppend(&text, "Not verified: the model answers with ", comparison.missing_answer,
                    ", which the golden does not have.\n");
  }
  if (comparison.Same(tolerance)) {
    absl::StrAppendFormat(&text, "The same within %g: %d outputs.\n", tolerance,
                          comparison.outputs.size());
  } else if (first != nullptr) {
    absl::StrAppendFormat(
        &text, "Differs first at %s, %s: sequence %d, %sfeature %d is %.9g, expected %.9g.\n",
        LayerName(first->layer, layers), absl::CHexEscape(first->name), first->sequence,
        first->of_sequence ? "" : absl::StrCat("position ", first->position, ", "), first->feature,
        first->got, first->want);
  }
  return text;
}

nlohmann::json ReportJson(const Verification& verification) {
  const auto& [comparison, layers, tolerance] = verification;
  const auto place = [&, layers = layers](const Worst& worst) {
    return nlohmann::json{{"where", LayerName(worst.layer, layers)},
                          {"output", worst.name},
                          {"largest_error", worst.error}};
  };
  nlohmann::json outputs = nlohmann::json::array();
  for (const Worst& worst : comparison.outputs) outputs.push_back(place(worst));
  nlohmann::json json = {{"same", verification.same()},
                         {"tolerance", tolerance},
                         {"outputs", outputs},
                         {"not_compared", comparison.unknown},
                         {"not_in_golden", comparison.unproven},
                         {"missing_answer", comparison.missing_answer}};
  if (const Worst* first = comparison.FirstAbove(tolerance)) {
    json["differs_first"] = place(*first);
    json["differs_first"].update({{"sequence", first->sequence},
                                  {"position", first->position},
                                  {"feature", first->feature},
                                  {"value", first->got},
                                  {"expected", first->want}});
  }
  return json;
}

absl::StatusOr<Verification> Verify(const std::string& model_directory, const std::string& golden,
                                    double tolerance, const CpuOptions& options) {
  auto model = LoadModel("verified", 1, model_directory);
  if (!model.ok()) return Named(model_directory, model.status());
  SLUICE_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(golden));
  auto arrays = ReadNpz(file->bytes());
  if (!arrays.ok()) return Named(golden, arrays.status());
  const auto parsed = ParseGolden(*std::move(arrays), (*model)->config);
  if (!parsed.ok()) return Named(golden, parsed.status());
  SLUICE_ASSIGN_OR_RETURN(auto comparison, Compare(*model, *parsed, options));
  if (comparison.outputs.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(golden, ": has no output that the model computes"));
  }
  return Verification{std::move(comparison), (*model)->config.layers, tolerance};
}

}  // namespace sluice::verify
