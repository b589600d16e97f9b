// Answers to inference requests as values, JSON and text. A server is not trusted to send tensors
// that agree with themselves.
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
  // INT32, INT64, FP32, BYTES; as many as the shape says.
  std::variant<std::vector<int32_t>, std::vector<int64_t>, std::vector<float>,
               std::vector<std::string>>
      values;
};

using Tensors = std::vector<Tensor>;

// InvalidArgument names the output whose shape, datatype and bytes do not agree.
absl::StatusOr<Tensors> DecodeOutputs(const inference::ModelInferResponse& response);

// nullptr when there is none of that name.
const Tensor* FindTensor(const Tensors& tensors, absl::string_view name);

// Of all rows; 0 when the answer does not say.
int64_t GeneratedTokens(const Tensors& tensors);

// Of the first row; empty when the answer does not say.
std::string FinishReason(const Tensors& tensors);

// The seed that the server drew.
std::optional<int64_t> DrawnSeed(const inference::ModelInferResponse& response);

// Model, version, id and parameters where set, and `outputs`: nested lists without the dimension of
// the one row. BYTES that are not UTF-8 have their wrong bytes replaced when the JSON is written.
nlohmann::json ResponseJson(const inference::ModelInferResponse& response, const Tensors& tensors);

// One line of JSON, whatever bytes the strings hold.
std::string JsonLine(const nlohmann::json& value);

// For people: the generated text (or ids), then a table of candidates where there are some. With
// `all`, every tensor that these do not show follows, long ones cut.
std::string ResponseText(const Tensors& tensors, bool all);

}  // namespace sluice::client
