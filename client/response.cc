#include "client/response.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/option_value.h"
#include "base/status_macros.h"
#include "client/table.h"

namespace sluice::client {
namespace {

using inference::ModelInferResponse;
using nlohmann::json;

constexpr int kMaxDimensions = 8;
// Limits the other dimensions of an empty tensor.
constexpr size_t kMinElementLimit = 65536;

absl::Status TensorError(const Tensor& tensor, absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat("the server's output ", Quote(tensor.name.substr(0, 80)), " ", problem));
}

absl::StatusOr<size_t> CountElements(const Tensor& tensor, size_t raw_bytes) {
  if (tensor.shape.size() > kMaxDimensions) return TensorError(tensor, "has too many dimensions");
  const int64_t limit = std::max(raw_bytes, kMinElementLimit);
  int64_t extent = 1;  // the product of the dimensions that are not 0
  bool empty = false;
  for (const int64_t dimension : tensor.shape) {
    if (dimension < 0) return TensorError(tensor, "has a negative dimension");
    empty |= dimension == 0;
    if (dimension > 0 && __builtin_mul_overflow(extent, dimension, &extent)) extent = limit + 1;
    if (extent > limit) return TensorError(tensor, "has a shape larger than its bytes");
  }
  return empty ? 0 : static_cast<size_t>(extent);
}

template <typename T>
absl::Status DecodeNumbers(const std::string& raw, size_t elements, Tensor* tensor) {
  if (raw.size() != elements * sizeof(T)) {
    return TensorError(*tensor, absl::StrCat("has ", raw.size(), " bytes for ", elements,
                                             " elements of ", sizeof(T), " bytes"));
  }
  std::vector<T> values(elements);
  if (elements > 0) std::memcpy(values.data(), raw.data(), raw.size());
  tensor->values = std::move(values);
  return absl::OkStatus();
}

absl::Status DecodeStrings(absl::string_view raw, size_t elements, Tensor* tensor) {
  std::vector<std::string> values;
  while (!raw.empty()) {
    uint32_t length;
    if (raw.size() < sizeof length) return TensorError(*tensor, "ends within a length");
    std::memcpy(&length, raw.data(), sizeof length);
    raw.remove_prefix(sizeof length);
    if (raw.size() < length) return TensorError(*tensor, "ends within an element");
    values.emplace_back(raw.substr(0, length));
    raw.remove_prefix(length);
  }
  if (values.size() != elements) {
    return TensorError(
        *tensor, absl::StrCat("has ", values.size(), " strings, but its shape needs ", elements));
  }
  tensor->values = std::move(values);
  return absl::OkStatus();
}

absl::Status DecodeValues(const std::string& raw, Tensor* tensor) {
  SLUICE_ASSIGN_OR_RETURN(const size_t elements, CountElements(*tensor, raw.size()));
  if (tensor->datatype == "INT32") return DecodeNumbers<int32_t>(raw, elements, tensor);
  if (tensor->datatype == "INT64") return DecodeNumbers<int64_t>(raw, elements, tensor);
  if (tensor->datatype == "FP32") return DecodeNumbers<float>(raw, elements, tensor);
  if (tensor->datatype == "BYTES") return DecodeStrings(raw, elements, tensor);
  return TensorError(*tensor, absl::StrCat("has a datatype that this client does not read: ",
                                           tensor->datatype.substr(0, 16)));
}

// Returns the nested lists below dimension `depth`, starting with element `*next`.
template <typename T>
json Nest(const Tensor& tensor, const std::vector<T>& values, size_t depth, size_t* next) {
  if (depth == tensor.shape.size()) return values[(*next)++];
  json list = json::array();
  for (int64_t i = 0; i < tensor.shape[depth]; ++i) {
    // If the last dimension is empty, the lists are empty and there are no elements.
    list.push_back(Nest(tensor, values, depth + 1, next));
  }
  return list;
}

json TensorJson(const Tensor& tensor) {
  size_t next = 0;
  json value =
      std::visit([&](const auto& values) { return Nest(tensor, values, 0, &next); }, tensor.values);
  if (!tensor.shape.empty() && tensor.shape[0] == 1) value = json(value[0]);
  const bool one_per_row = tensor.name == "sequence_length" || tensor.name == "finish_reason" ||
                           tensor.name == "text_output";
  if (one_per_row && value.is_array() && value.size() == 1) value = json(value[0]);
  return value;
}

json ParameterJson(const inference::InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case inference::InferParameter::kBoolParam:
      return parameter.bool_param();
    case inference::InferParameter::kInt64Param:
      return parameter.int64_param();
    case inference::InferParameter::kStringParam:
      return parameter.string_param();
    case inference::InferParameter::kDoubleParam:
      return parameter.double_param();
    case inference::InferParameter::kUint64Param:
      return parameter.uint64_param();
    case inference::InferParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return nullptr;
}

struct ValueFormatter {
  std::string operator()(float value) const { return absl::StrFormat("%.4f", value); }
  std::string operator()(int32_t value) const { return absl::StrCat(value); }
  std::string operator()(int64_t value) const { return absl::StrCat(value); }
  std::string operator()(const std::string& value) const { return Quote(value); }
};

// Returns the values [begin, begin + count), as far as they exist, with spaces between them.
std::string FormatValues(const Tensor& tensor, size_t begin, size_t count) {
  return std::visit(
      [&](const auto& values) {
        const size_t end = std::min(begin + count, values.size());
        std::string line;
        for (size_t i = std::min(begin, end); i < end; ++i) {
          absl::StrAppend(&line, line.empty() ? "" : " ", ValueFormatter()(values[i]));
        }
        return line;
      },
      tensor.values);
}

size_t Size(const Tensor& tensor) {
  return std::visit([](const auto& values) { return values.size(); }, tensor.values);
}

// Returns the main part of the answer: the text, or the ids if the model has no text.
std::string MainText(const Tensors& tensors) {
  const auto* strings = FindValues<std::string>(tensors, "text_output");
  if (strings != nullptr) return absl::StrCat(absl::StrJoin(*strings, "\n"), "\n");
  const Tensor* ids = FindTensor(tensors, "output_ids");
  return ids == nullptr ? "" : absl::StrCat(FormatValues(*ids, 0, Size(*ids)), "\n");
}

// Returns a line for each generated token of a single row; empty if there are no candidates.
std::string CandidateTable(const Tensors& tensors) {
  const Tensor* ids = FindTensor(tensors, "top_ids");
  if (ids == nullptr || ids->shape.size() != 3) return "";
  const auto* id_values = FindValues<int32_t>(tensors, "top_ids");
  const auto* logprob_values = FindValues<float>(tensors, "top_logprobs");
  if (id_values == nullptr || logprob_values == nullptr) return "";
  if (id_values->size() != logprob_values->size() || id_values->empty()) return "";
  const size_t per_token = ids->shape[2];
  Table table({"token", "candidates (id: log-probability)"});
  for (size_t begin = 0; begin < id_values->size(); begin += per_token) {
    std::string candidates;
    for (size_t i = begin; i < begin + per_token; ++i) {
      absl::StrAppendFormat(&candidates, "%s%d: %.4f", i == begin ? "" : "  ", (*id_values)[i],
                            (*logprob_values)[i]);
    }
    table.AddRow({absl::StrCat(begin / per_token), candidates});
  }
  return table.Render();
}

// Returns name, datatype and shape, then a line for each run of the last dimension.
std::string TensorText(const Tensor& tensor) {
  constexpr size_t kMaxLines = 32, kMaxColumns = 16;
  std::string text = absl::StrCat(tensor.name, " ", tensor.datatype, " [",
                                  absl::StrJoin(tensor.shape, ", "), "]\n");
  const size_t size = Size(tensor);
  const size_t columns = size == 0 || tensor.shape.empty() ? 1 : tensor.shape.back();
  for (size_t begin = 0; begin < size; begin += columns) {
    if (begin / columns == kMaxLines) return absl::StrCat(text, "  ...\n");
    const size_t shown = std::min(columns, kMaxColumns);
    absl::StrAppend(&text, "  ", FormatValues(tensor, begin, shown),
                    columns > shown ? " ...\n" : "\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<Tensors> DecodeOutputs(const ModelInferResponse& response) {
  if (response.outputs_size() != response.raw_output_contents_size()) {
    return absl::InvalidArgumentError(absl::StrFormat("the server sent %d outputs with %d contents",
                                                      response.outputs_size(),
                                                      response.raw_output_contents_size()));
  }
  Tensors tensors;
  for (int i = 0; i < response.outputs_size(); ++i) {
    const auto& output = response.outputs(i);
    Tensor& tensor = tensors.emplace_back();
    tensor.name = output.name();
    tensor.datatype = output.datatype();
    tensor.shape.assign(output.shape().begin(), output.shape().end());
    SLUICE_RETURN_IF_ERROR(DecodeValues(response.raw_output_contents(i), &tensor));
  }
  return tensors;
}

const Tensor* FindTensor(const Tensors& tensors, absl::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

int64_t GeneratedTokens(const Tensors& tensors) {
  if (const auto* lengths = FindValues<int32_t>(tensors, "sequence_length")) {
    return std::accumulate(lengths->begin(), lengths->end(), int64_t{0});
  }
  const Tensor* ids = FindTensor(tensors, "output_ids");
  return ids == nullptr ? 0 : Size(*ids);
}

std::string FinishReason(const Tensors& tensors) {
  const auto* reasons = FindValues<std::string>(tensors, "finish_reason");
  return reasons == nullptr || reasons->empty() ? "" : reasons->front();
}

std::optional<int64_t> DrawnSeed(const ModelInferResponse& response) {
  const auto seed = response.parameters().find("seed");
  if (seed == response.parameters().end()) return std::nullopt;
  return seed->second.int64_param();
}

json ResponseJson(const ModelInferResponse& response, const Tensors& tensors) {
  json result = {{"model", response.model_name()}, {"version", response.model_version()}};
  if (!response.id().empty()) result["id"] = response.id();
  for (const auto& [name, parameter] : response.parameters()) {
    result["parameters"][name] = ParameterJson(parameter);
  }
  json outputs = json::object();
  for (const Tensor& tensor : tensors) outputs[tensor.name] = TensorJson(tensor);
  result["outputs"] = std::move(outputs);
  return result;
}

std::string JsonLine(const json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace) + "\n";
}

std::string ResponseText(const Tensors& tensors, bool all) {
  const std::string candidates = CandidateTable(tensors);
  std::string text = absl::StrCat(MainText(tensors), candidates);
  // After a text or ids, the details that every response has are left out.
  constexpr std::array<absl::string_view, 5> kDetails = {
      "output_ids", "sequence_length", "logprobs", "finish_reason", "prompt_tokens"};
  const bool brief = !all && !text.empty();
  for (const Tensor& tensor : tensors) {
    const bool in_table =
        !candidates.empty() && (tensor.name == "top_ids" || tensor.name == "top_logprobs");
    const bool left_out =
        brief && std::find(kDetails.begin(), kDetails.end(), tensor.name) != kDetails.end();
    if (tensor.name != "text_output" && !in_table && !left_out) {
      absl::StrAppend(&text, TensorText(tensor));
    }
  }
  return text;
}

}  // namespace sluice::client
