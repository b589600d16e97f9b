#include "client/task_calls.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/request.h"
#include "client/response.h"

namespace sluice::client {
namespace {

// The rows of one call. All servers allow this many by default.
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
  const auto* const floats = FindValues<float>(tensors, output);
  if (floats == nullptr || floats->size() % rows != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model ", response.model_name(), " returns no ", output));
  }
  const size_t width = floats->size() / rows;
  for (size_t row = 0; row < rows; ++row) {
    const auto first = floats->begin() + static_cast<int64_t>(row * width);
    all->values.emplace_back(first, first + static_cast<int64_t>(width));
  }
  if (const auto* const names = FindValues<std::string>(tensors, "label");
      names != nullptr && names->size() == rows) {
    all->labels.insert(all->labels.end(), names->begin(), names->end());
  }
  return absl::OkStatus();
}

// Returns the `count` values of an output, or nullptr if it is absent or has another size.
template <typename T>
const std::vector<T>* ValuesOf(const Tensors& tensors, absl::string_view name, size_t count) {
  const auto* const values = FindValues<T>(tensors, name);
  return values != nullptr && values->size() == count ? values : nullptr;
}

absl::Status AppendTokens(const inference::ModelInferResponse& response, size_t rows,
                          std::vector<std::vector<LabelledToken>>* all) {
  SLUICE_ASSIGN_OR_RETURN(const Tensors tensors, DecodeOutputs(response));
  const Tensor* const scores = FindTensor(tensors, "token_scores");
  const bool shaped = scores != nullptr && scores->shape.size() == 3;
  const auto longest = shaped ? static_cast<size_t>(scores->shape[1]) : 0;
  const auto labels = shaped ? static_cast<size_t>(scores->shape[2]) : 0;
  const size_t tokens = rows * longest;
  const auto* values = ValuesOf<float>(tensors, "token_scores", tokens * labels);
  const auto* names = ValuesOf<std::string>(tensors, "token_labels", tokens);
  const auto* offsets = ValuesOf<int32_t>(tensors, "token_offsets", 2 * tokens);
  const auto* counts = ValuesOf<int32_t>(tensors, "token_count", rows);
  if (values == nullptr || names == nullptr || offsets == nullptr || counts == nullptr ||
      labels == 0) {
    return absl::InvalidArgumentError(absl::StrCat("the model ", response.model_name(),
                                                   " has no token classifier with named labels"));
  }
  for (size_t row = 0; row < rows; ++row) {
    std::vector<LabelledToken>& of_row = all->emplace_back();
    const auto count = std::min(longest, static_cast<size_t>(std::max((*counts)[row], 0)));
    for (size_t i = row * longest; i < row * longest + count; ++i) {
      const auto first = values->begin() + static_cast<int64_t>(i * labels);
      of_row.push_back({.label = (*names)[i],
                        .score = *std::max_element(first, first + static_cast<int64_t>(labels)),
                        .begin = (*offsets)[2 * i],
                        .end = (*offsets)[2 * i + 1]});
    }
  }
  return absl::OkStatus();
}

// Returns the size of the second dimension of the matrix `name`, or 0 if there is none.
int64_t WidthOf(const Tensors& tensors, absl::string_view name) {
  const Tensor* const matrix = FindTensor(tensors, name);
  return matrix != nullptr && matrix->shape.size() == 2 ? matrix->shape[1] : 0;
}

absl::Status AppendTerms(const inference::ModelInferResponse& response, size_t rows,
                         std::vector<std::vector<Term>>* all) {
  SLUICE_ASSIGN_OR_RETURN(const Tensors tensors, DecodeOutputs(response));
  const int64_t width = WidthOf(tensors, "sparse_ids");
  const size_t count = rows * static_cast<size_t>(width);
  const auto* ids = ValuesOf<int32_t>(tensors, "sparse_ids", count);
  const auto* weights = ValuesOf<float>(tensors, "sparse_weights", count);
  if (ids == nullptr || weights == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model ", response.model_name(),
                     " returns no sparse embedding; use a masked language model"));
  }
  for (size_t row = 0; row < rows; ++row) {
    std::vector<Term>& terms = all->emplace_back();
    for (size_t i = row * width; i < (row + 1) * width && (*ids)[i] >= 0; ++i) {
      terms.push_back({(*ids)[i], (*weights)[i]});
    }
  }
  return absl::OkStatus();
}

// A part of a text, in characters, and the index of its label.
struct ExtractedPart {
  int32_t label, begin, end;
  float score;
};

absl::Status AppendParts(const inference::ModelInferResponse& response, size_t rows,
                         std::vector<std::vector<ExtractedPart>>* all) {
  SLUICE_ASSIGN_OR_RETURN(const Tensors tensors, DecodeOutputs(response));
  const int64_t width = WidthOf(tensors, "extracted_labels");
  const size_t count = rows * static_cast<size_t>(width);
  const auto* places = ValuesOf<int32_t>(tensors, "extracted_spans", 2 * count);
  const auto* labels = ValuesOf<int32_t>(tensors, "extracted_labels", count);
  const auto* scores = ValuesOf<float>(tensors, "extracted_scores", count);
  if (places == nullptr || labels == nullptr || scores == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model ", response.model_name(), " does not extract parts of texts"));
  }
  for (size_t row = 0; row < rows; ++row) {
    std::vector<ExtractedPart>& parts = all->emplace_back();
    for (size_t i = row * width; i < (row + 1) * width && (*labels)[i] >= 0; ++i) {
      parts.push_back({.label = (*labels)[i],
                       .begin = (*places)[2 * i],
                       .end = (*places)[2 * i + 1],
                       .score = (*scores)[i]});
    }
  }
  return absl::OkStatus();
}

// Returns the bytes before this many characters of the text.
int32_t BytesBefore(const std::string& text, int32_t characters) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
    if (begins && characters-- <= 0) break;
  }
  return static_cast<int32_t>(at);
}

// Returns the error with the index of the text among all texts, if it names a text by its row of
// the part that begins after `first` texts: `input text_input [3] has ...`. If the part's texts are
// the second texts of one `partner`, row 0 of text_input is the partner, and the later rows are the
// part's texts.
absl::Status NamingText(const absl::Status& error, size_t first, bool partner) {
  const absl::string_view message = error.message();
  absl::string_view name = "text_input";
  if (absl::StartsWith(message, "input text_pair_input [")) {
    name = "text_pair_input";
  } else if (!absl::StartsWith(message, "input text_input [")) {
    return error;
  }
  const size_t begin = message.find('[') + 1, end = message.find(']');
  size_t row = 0;
  if (end == message.npos || !absl::SimpleAtoi(message.substr(begin, end - begin), &row)) {
    return error;
  }
  // A pair that is too long has the row of its second text.
  if (partner && name == "text_input" && !absl::StrContains(message, " with its pair")) {
    if (row == 0) return error;
    name = "text_pair_input";
    --row;
  }
  absl::Status named(error.code(),
                     absl::StrCat("input ", name, " [", first + row, message.substr(end)));
  error.ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) { named.SetPayload(type, payload); });
  return named;
}

// Calls the model for the texts in parts of at most kRowsAtOnce. `fill` puts a part into a request,
// and `take` takes its rows from the response. `partner` is as in NamingText.
absl::Status ForParts(
    const Connection& connection, const inference::ModelInferRequest& base,
    const std::vector<std::string>& texts, bool partner,
    const std::function<void(const std::vector<std::string>&, inference::ModelInferRequest*)>& fill,
    const std::function<absl::Status(const inference::ModelInferResponse&, size_t)>& take) {
  for (size_t first = 0; first < texts.size(); first += kRowsAtOnce) {
    const size_t rows = std::min(kRowsAtOnce, texts.size() - first);
    const auto begin = texts.begin() + static_cast<int64_t>(first);
    inference::ModelInferRequest request = base;
    fill({begin, begin + static_cast<int64_t>(rows)}, &request);
    const auto response = connection.Infer(request);
    if (!response.ok()) return NamingText(response.status(), first, partner);
    SLUICE_RETURN_IF_ERROR(take(*response, rows));
  }
  return absl::OkStatus();
}

// Returns the results of `append` for the rows of all texts.
template <typename Value>
absl::StatusOr<std::vector<std::vector<Value>>> RowsOf(
    const Connection& connection, const inference::ModelInferRequest& base,
    const std::vector<std::string>& texts,
    absl::Status (*append)(const inference::ModelInferResponse&, size_t,
                           std::vector<std::vector<Value>>*)) {
  std::vector<std::vector<Value>> all;
  SLUICE_RETURN_IF_ERROR(ForParts(
      connection, base, texts, /*partner=*/false,
      [](const std::vector<std::string>& part, inference::ModelInferRequest* filled) {
        SetTexts("text_input", part, filled);
      },
      [&](const inference::ModelInferResponse& response, size_t rows) {
        return append(response, rows, &all);
      }));
  return all;
}

// Returns whether a property, which is a list in JSON, has the name.
bool Lists(const inference::ModelMetadataResponse& metadata, const char* property,
           const std::string& name) {
  const auto found = metadata.properties().find(property);
  if (found == metadata.properties().end()) return false;
  const auto names = nlohmann::json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  return names.is_array() &&
         std::find(names.begin(), names.end(), nlohmann::json(name)) != names.end();
}

// Selects how a request embeds queries or documents: by the adapter of a task of the model's
// checkpoint, or by the prompt of this name, if the model has it. A model with neither a prompt for
// queries nor one for documents keeps its default prompt.
void SetSide(const inference::ModelMetadataResponse& metadata, const char* task,
             const std::string& prompt, inference::ModelInferRequest* request) {
  const bool tasks = Lists(metadata, "task_adapters", "retrieval.query") &&
                     Lists(metadata, "task_adapters", "retrieval.passage");
  if (tasks && request->model_name().find(':') == std::string::npos) {
    request->set_model_name(absl::StrCat(request->model_name(), ":", task));
  } else if (Lists(metadata, "prompts", "query") || Lists(metadata, "prompts", "document")) {
    (*request->mutable_parameters())["prompt_name"].set_string_param(
        Lists(metadata, "prompts", prompt) ? prompt : "");
  }
}

absl::StatusOr<std::vector<double>> Cosines(const Connection& connection,
                                            const inference::ModelInferRequest& request,
                                            const inference::ModelMetadataResponse& metadata,
                                            const std::string& query,
                                            const std::vector<std::string>& documents) {
  TextCall of_query{.request = request, .output = "embedding"};
  (*of_query.request.mutable_parameters())["normalize"].set_bool_param(true);
  TextCall of_document = of_query;
  SetSide(metadata, "retrieval.query", "query", &of_query.request);
  SetSide(metadata, "retrieval.passage", "document", &of_document.request);
  SLUICE_ASSIGN_OR_RETURN(const TextRows first, CallForTexts(connection, of_query, {query}));
  SLUICE_ASSIGN_OR_RETURN(const TextRows others, CallForTexts(connection, of_document, documents));
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

// Returns the first value of an output for each document after the query.
absl::StatusOr<std::vector<double>> FirstValues(const Connection& connection,
                                                const inference::ModelInferRequest& request,
                                                const std::string& output, const std::string& query,
                                                const std::vector<std::string>& documents) {
  const TextCall call{.request = request, .output = output, .partner = &query};
  SLUICE_ASSIGN_OR_RETURN(const TextRows rows, CallForTexts(connection, call, documents));
  std::vector<double> values;
  values.reserve(rows.values.size());
  for (const std::vector<float>& row : rows.values) values.push_back(row.empty() ? 0 : row.front());
  return values;
}

}  // namespace

absl::StatusOr<TextRows> CallForTexts(const Connection& connection, const TextCall& call,
                                      const std::vector<std::string>& texts) {
  TextRows all;
  SLUICE_RETURN_IF_ERROR(ForParts(
      connection, call.request, texts, call.partner != nullptr && call.partner_first,
      [&](const std::vector<std::string>& part, inference::ModelInferRequest* request) {
        // Generating models return embeddings only if the request names that output.
        if (call.output == "embedding") request->add_outputs()->set_name(call.output);
        if (call.partner == nullptr) {
          SetTexts("text_input", part, request);
        } else if (call.partner_first) {
          SetTexts("text_input", {*call.partner}, request);
          SetTexts("text_pair_input", part, request);
        } else {
          SetTexts("text_input", part, request);
          SetTexts("text_pair_input", std::vector<std::string>(part.size(), *call.partner),
                   request);
        }
      },
      [&](const inference::ModelInferResponse& response, size_t rows) {
        return Append(response, call.output, rows, &all);
      }));
  return all;
}

absl::StatusOr<TextRows> Classify(const Connection& connection,
                                  const inference::ModelInferRequest& request,
                                  const std::vector<std::string>& texts,
                                  const std::optional<std::string>& pair) {
  TextCall call{.request = request,
                .output = "scores",
                .partner = pair.has_value() ? &*pair : nullptr,
                .partner_first = false};
  if (!request.parameters().contains("activation")) {
    SLUICE_ASSIGN_OR_RETURN(const auto metadata,
                            connection.Metadata(request.model_name(), request.model_version()));
    const auto found = metadata.properties().find("probabilities");
    if (found != metadata.properties().end()) {
      (*call.request.mutable_parameters())["activation"].set_string_param(found->second);
    }
  }
  return CallForTexts(connection, call, texts);
}

absl::StatusOr<std::vector<std::vector<LabelledToken>>> LabelTokens(
    const Connection& connection, const inference::ModelInferRequest& request,
    const std::vector<std::string>& texts) {
  inference::ModelInferRequest base = request;
  if (!base.parameters().contains("activation")) {
    (*base.mutable_parameters())["activation"].set_string_param("softmax");
  }
  return RowsOf<LabelledToken>(connection, base, texts, AppendTokens);
}

absl::StatusOr<std::vector<std::vector<Entity>>> ExtractEntities(
    const Connection& connection, const inference::ModelInferRequest& request,
    const std::vector<std::string>& texts) {
  const auto given = request.parameters().find("labels");
  nlohmann::json labels = nlohmann::json::array();
  if (given != request.parameters().end()) {
    labels = nlohmann::json::parse(given->second.string_param());
  }
  SLUICE_ASSIGN_OR_RETURN(const auto rows,
                          RowsOf<ExtractedPart>(connection, request, texts, AppendParts));
  std::vector<std::vector<Entity>> all;
  for (size_t row = 0; row < rows.size(); ++row) {
    std::vector<Entity>& entities = all.emplace_back();
    for (const ExtractedPart& part : rows[row]) {
      if (static_cast<size_t>(part.label) >= labels.size()) {
        return absl::InternalError("the server returned a label that was not requested");
      }
      entities.push_back({.type = labels[part.label].get<std::string>(),
                          .score = part.score,
                          .begin = BytesBefore(texts[row], part.begin),
                          .end = BytesBefore(texts[row], part.end)});
    }
  }
  return all;
}

absl::StatusOr<std::vector<std::vector<Term>>> SparseTerms(
    const Connection& connection, const inference::ModelInferRequest& request,
    const std::vector<std::string>& texts) {
  inference::ModelInferRequest base = request;
  for (const char* const output : {"sparse_ids", "sparse_weights"}) {
    base.add_outputs()->set_name(output);
  }
  return RowsOf<Term>(connection, base, texts, AppendTerms);
}

absl::StatusOr<std::vector<double>> Relevances(const Connection& connection,
                                               const inference::ModelInferRequest& request,
                                               const std::string& query,
                                               const std::vector<std::string>& documents) {
  SLUICE_ASSIGN_OR_RETURN(const auto metadata,
                          connection.Metadata(request.model_name(), request.model_version()));
  const auto* const scores = Find(metadata.outputs(), "scores");
  const auto task = metadata.properties().find("task");
  if (scores == nullptr && task != metadata.properties().end() && task->second == "generate") {
    return absl::FailedPreconditionError(absl::StrCat(
        "the model ", request.model_name(),
        " generates text, and its files do not state that it makes embeddings to compare; rerank "
        "with a cross-encoder or an embedding model, add the model's modules.json, or set "
        "sluice.embedding in its config.json"));
  }
  const bool vectors = Find(metadata.outputs(), "vectors") != nullptr;
  if (scores == nullptr && !vectors) {
    return Cosines(connection, request, metadata, query, documents);
  }
  if (vectors) return FirstValues(connection, request, "maxsim", query, documents);
  const int64_t labels = scores->shape_size() > 0 ? scores->shape(scores->shape_size() - 1) : 0;
  if (labels != 1 || Find(metadata.inputs(), "text_pair_input") == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the classifier of the model ", request.model_name(), " has ", labels,
                     " labels and cannot score a pair of texts; rerank with a cross-encoder or an "
                     "embedding model"));
  }
  return FirstValues(connection, request, "scores", query, documents);
}

}  // namespace sluice::client
