#include "client/task_calls.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/request.h"
#include "client/response.h"

namespace sluice::client {
namespace {

// The rows of one call, below every server's default bound.
constexpr size_t kRowsAtOnce = 128;

const inference::ModelMetadataResponse::TensorMetadata* Find(
    const google::protobuf::RepeatedPtrField<inference::ModelMetadataResponse::TensorMetadata>& all,
    absl::string_view name) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [name](const auto& each) { return each.name() == name; });
  return found == all.end() ? nullptr : &*found;
}

absl::Status Append(const inference::ModelInferResponse& response, const std::string& output,
                    size_t rows, TextRows* all) {
  SLUICE_ASSIGN_OR_RETURN(const Tensors tensors, DecodeOutputs(response));
  const Tensor* const tensor = FindTensor(tensors, output);
  const auto* const floats =
      tensor == nullptr ? nullptr : std::get_if<std::vector<float>>(&tensor->values);
  if (floats == nullptr || floats->size() % rows != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model ", response.model_name(), " returns no ", output));
  }
  const size_t width = floats->size() / rows;
  for (size_t row = 0; row < rows; ++row) {
    const auto first = floats->begin() + static_cast<int64_t>(row * width);
    all->values.emplace_back(first, first + static_cast<int64_t>(width));
  }
  const Tensor* const label = FindTensor(tensors, "label");
  const auto* const names =
      label == nullptr ? nullptr : std::get_if<std::vector<std::string>>(&label->values);
  if (names != nullptr && names->size() == rows) {
    all->labels.insert(all->labels.end(), names->begin(), names->end());
  }
  return absl::OkStatus();
}

// Returns the value of the prompt's parameter: the name if the model has it, else none.
std::string PromptOf(const inference::ModelMetadataResponse& metadata, const std::string& name) {
  const auto found = metadata.properties().find("prompts");
  if (found == metadata.properties().end()) return "";
  const auto names = nlohmann::json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  const bool has = names.is_array() &&
                   std::find(names.begin(), names.end(), nlohmann::json(name)) != names.end();
  return has ? name : "";
}

absl::StatusOr<std::vector<double>> Cosines(const Connection& connection,
                                            const inference::ModelInferRequest& request,
                                            const inference::ModelMetadataResponse& metadata,
                                            const std::string& query,
                                            const std::vector<std::string>& documents) {
  TextCall call{.request = request, .output = "embedding"};
  auto& parameters = *call.request.mutable_parameters();
  parameters["normalize"].set_bool_param(true);
  parameters["prompt_name"].set_string_param(PromptOf(metadata, "query"));
  SLUICE_ASSIGN_OR_RETURN(const TextRows first, CallForTexts(connection, call, {query}));
  parameters["prompt_name"].set_string_param(PromptOf(metadata, "document"));
  SLUICE_ASSIGN_OR_RETURN(const TextRows others, CallForTexts(connection, call, documents));
  std::vector<double> cosines;
  for (const std::vector<float>& vector : others.values) {
    double sum = 0;
    for (size_t i = 0; i < std::min(vector.size(), first.values[0].size()); ++i) {
      sum += double{vector[i]} * first.values[0][i];
    }
    cosines.push_back(sum);
  }
  return cosines;
}

}  // namespace

absl::StatusOr<TextRows> CallForTexts(const Connection& connection, const TextCall& call,
                                      const std::vector<std::string>& texts) {
  TextRows all;
  for (size_t first = 0; first < texts.size(); first += kRowsAtOnce) {
    const size_t rows = std::min(kRowsAtOnce, texts.size() - first);
    const auto begin = texts.begin() + static_cast<int64_t>(first);
    const std::vector<std::string> part(begin, begin + static_cast<int64_t>(rows));
    inference::ModelInferRequest request = call.request;
    if (call.partner == nullptr) {
      SetTexts("text_input", part, &request);
    } else if (call.partner_first) {
      SetTexts("text_input", {*call.partner}, &request);
      SetTexts("text_pair_input", part, &request);
    } else {
      SetTexts("text_input", part, &request);
      SetTexts("text_pair_input", std::vector<std::string>(rows, *call.partner), &request);
    }
    SLUICE_ASSIGN_OR_RETURN(const auto response, connection.Infer(request));
    SLUICE_RETURN_IF_ERROR(Append(response, call.output, rows, &all));
  }
  return all;
}

absl::StatusOr<std::vector<double>> Relevances(const Connection& connection,
                                               const inference::ModelInferRequest& request,
                                               const std::string& query,
                                               const std::vector<std::string>& documents) {
  SLUICE_ASSIGN_OR_RETURN(const auto metadata,
                          connection.Metadata(request.model_name(), request.model_version()));
  const auto* const scores = Find(metadata.outputs(), "scores");
  if (scores == nullptr) return Cosines(connection, request, metadata, query, documents);
  const int64_t labels = scores->shape_size() > 0 ? scores->shape(scores->shape_size() - 1) : 0;
  if (labels != 1 || Find(metadata.inputs(), "text_pair_input") == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("the model ", request.model_name(),
                                                      " has a classifier of ", labels,
                                                      " labels that gives no score of a pair"));
  }
  const TextCall call{.request = request, .output = "scores", .partner = &query};
  SLUICE_ASSIGN_OR_RETURN(const TextRows rows, CallForTexts(connection, call, documents));
  std::vector<double> relevances;
  relevances.reserve(rows.values.size());
  for (const std::vector<float>& row : rows.values) {
    relevances.push_back(row.empty() ? 0 : row.front());
  }
  return relevances;
}

}  // namespace sluice::client
