#include "client/zero_shot.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "client/task_calls.h"

namespace sluice::client {
namespace {

constexpr char kPlace[] = "{}";

// The places of two labels of the model. The contradiction is the first label, or the last if the
// entailment is the first.
struct Places {
  size_t entailment, contradiction;
};

absl::StatusOr<Places> PlacesOf(const inference::ModelMetadataResponse& metadata) {
  std::vector<std::string> names;
  const auto found = metadata.properties().find("labels");
  if (found != metadata.properties().end()) {
    const auto list = nlohmann::json::parse(found->second, nullptr, /*allow_exceptions=*/false);
    for (const auto& name : list) names.push_back(name.is_string() ? name : "");
  }
  const auto entails = std::ranges::find_if(
      names, [](const std::string& name) { return absl::StartsWithIgnoreCase(name, "entail"); });
  const bool pairs = std::ranges::any_of(
      metadata.inputs(), [](const auto& input) { return input.name() == "text_pair_input"; });
  if (entails == names.end() || names.size() < 2 || !pairs) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the model ", metadata.name(),
        " is not a model of natural language inference: it needs a classifier of pairs of texts "
        "with a label whose name begins with \"entail\", and has the labels ",
        names.empty() ? "without names" : absl::StrJoin(names, ", "),
        "; set id2label in its config.json, or use another model"));
  }
  const auto place = static_cast<size_t>(entails - names.begin());
  return Places{place, place == 0 ? names.size() - 1 : 0};
}

std::vector<double> Softmax(const std::vector<double>& logits) {
  const double most = *std::ranges::max_element(logits);
  std::vector<double> shares;
  double sum = 0;
  for (const double logit : logits) sum += shares.emplace_back(std::exp(logit - most));
  for (double& share : shares) share /= sum;
  return shares;
}

// Returns the probabilities of the labels, whose hypotheses have these scores from the model.
std::vector<double> ScoresOf(const std::vector<std::vector<float>>& rows, const Places& places,
                             bool multi_label) {
  std::vector<double> scores;
  if (!multi_label && rows.size() > 1) {
    for (const std::vector<float>& row : rows) scores.push_back(row[places.entailment]);
    return Softmax(scores);
  }
  for (const std::vector<float>& row : rows) {
    scores.push_back(Softmax({row[places.contradiction], row[places.entailment]})[1]);
  }
  return scores;
}

}  // namespace

absl::Status CheckZeroShot(const ZeroShotArguments& arguments) {
  const std::set<std::string> different(arguments.labels.begin(), arguments.labels.end());
  if (different.size() < arguments.labels.size() || different.contains("")) {
    return absl::InvalidArgumentError(
        "--candidate-label: the labels must be different and not empty");
  }
  const std::string& hypothesis = arguments.hypothesis;
  const size_t place = hypothesis.find(kPlace);
  if (place == hypothesis.npos || hypothesis.find(kPlace, place + 1) != hypothesis.npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("--hypothesis is \"", hypothesis,
                     "\"; expected a text with {} once, in place of the label"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<LabelScore>>> ZeroShot(
    const Connection& connection, const inference::ModelInferRequest& request,
    const ZeroShotArguments& arguments, const std::vector<std::string>& texts) {
  SLUICE_ASSIGN_OR_RETURN(const auto metadata,
                          connection.Metadata(request.model_name(), request.model_version()));
  SLUICE_ASSIGN_OR_RETURN(const Places places, PlacesOf(metadata));
  std::vector<std::string> hypotheses;
  hypotheses.reserve(arguments.labels.size());
  for (const std::string& label : arguments.labels) {
    hypotheses.push_back(absl::StrReplaceAll(arguments.hypothesis, {{kPlace, label}}));
  }
  TextCall call{.request = request, .output = "scores"};
  (*call.request.mutable_parameters())["activation"].set_string_param("none");
  std::vector<std::vector<LabelScore>> all;
  for (const std::string& text : texts) {
    call.partner = &text;
    SLUICE_ASSIGN_OR_RETURN(const TextRows rows, CallForTexts(connection, call, hypotheses));
    for (const std::vector<float>& row : rows.values) {
      if (row.size() > std::max(places.entailment, places.contradiction)) continue;
      return absl::InternalError("the server returned fewer scores than the model has labels");
    }
    const std::vector<double> scores = ScoresOf(rows.values, places, arguments.multi_label);
    std::vector<LabelScore>& of_text = all.emplace_back();
    for (size_t i = 0; i < scores.size(); ++i) of_text.push_back({arguments.labels[i], scores[i]});
    std::ranges::stable_sort(of_text, std::greater<>(), &LabelScore::score);
  }
  return all;
}

}  // namespace sluice::client
