// Converts inference responses to values, JSON and text. The parts of a tensor are checked, because
// the server is not trusted to send consistent ones.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/inference.pb.h"

namespace sluice::client {

struct Tensor {
  std::string name;
  std::string datatype;
  std::vector<int64_t> shape;  // at most 8 dimensions
  // INT32, INT64, FP32 or BYTES. The size is the product of the dimensions.
  std::variant<std::vector<int32_t>, std::vector<int64_t>, std::vector<float>,
               std::vector<std::string>>
      values;
};

using Tensors = std::vector<Tensor>;

// Returns InvalidArgument that names the output if its shape, datatype and bytes do not agree.
absl::StatusOr<Tensors> DecodeOutputs(const inference::ModelInferResponse& response);

// Returns nullptr if there is no tensor of that name.
const Tensor* FindTensor(const Tensors& tensors, absl::string_view name);
// Returns the values of a tensor, or nullptr if it is absent or has another type.
template <typename T>
const std::vector<T>* FindValues(const Tensors& tensors, absl::string_view name) {
  const Tensor* const tensor = FindTensor(tensors, name);
  return tensor == nullptr ? nullptr : std::get_if<std::vector<T>>(&tensor->values);
}

// Returns the number of generated tokens of all rows; 0 if the response does not include it.
int64_t GeneratedTokens(const Tensors& tensors);

// Returns the finish reason of the first row; empty if the response does not include it.
std::string FinishReason(const Tensors& tensors);

// Returns the seed that the server drew, if it drew one.
std::optional<int64_t> DrawnSeed(const inference::ModelInferResponse& response);

// Returns the model, version, id and parameters that are set, and `outputs` as nested lists; for a
// single row the row dimension is left out. Bytes that are not UTF-8 are replaced when the JSON is
// written.
nlohmann::json ResponseJson(const inference::ModelInferResponse& response, const Tensors& tensors);

// Returns one line of JSON, even if strings hold invalid UTF-8.
std::string JsonLine(const nlohmann::json& value);

// Returns readable text: the generated text or ids, then a table of candidates if there are any,
// then the other tensors; long ones are cut. Without `all`, the details that every response has,
// such as logprobs, are left out after a text, ids or a table.
std::string ResponseText(const Tensors& tensors, bool all);

}  // namespace sluice::client
