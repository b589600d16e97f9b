// The rows of a request, from tensors or texts to tokens or vectors.
//
// Read checks shapes and sizes and makes nothing of the values; Encode and Cut settle how long each row
// is; Copy checks each value that is left while it copies it into the request, once.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/request.h"
#include "server/protocol/inputs.h"
#include "server/protocol/tensors.h"

namespace sluice {

class Prompt {
 public:
  static absl::StatusOr<Prompt> Read(const InputTensors& inputs, const Model& model,
                                     int32_t max_rows);

  int64_t rows() const { return rows_; }
  bool embeds() const { return floats_.data != nullptr; }

  // Texts become tokens; no effect on others.
  absl::Status Encode(const Model& model);
  // Rows longer than `most` are cut as `truncation` says, or refused.
  absl::Status Cut(Truncation truncation, int64_t most);
  // To the request's lengths, and to its tokens or inputs.
  absl::Status Copy(Request* request) const;

  // After Cut.
  const std::vector<int32_t>& lengths() const { return lengths_; }
  int64_t cut_tokens() const { return cut_tokens_; }  // of all rows

 private:
  absl::Status ReadLengths(const InputTensor& tensor, int64_t rows, int64_t columns);
  absl::Status CopyIds(const Model& model, Request* request) const;
  absl::Status CopyFloats(Request* request) const;
  void CopyEncoded(Request* request) const;

  int64_t rows_ = 0;
  IntMatrix ids_;
  FloatRows floats_;
  std::vector<std::string_view> texts_;
  std::vector<int32_t> encoded_;  // of all texts
  std::vector<int32_t> lengths_;  // per row
  std::vector<int32_t> skipped_;  // per row, of its first ones; empty: none
  std::vector<int32_t> whole_;    // lengths before the cut; empty: as they are
  int64_t cut_tokens_ = 0;
};

}  // namespace sluice
