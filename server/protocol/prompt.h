// The prompt rows of a request, from tensors or texts to tokens or vectors.
//
// Read checks shapes and sizes but not values. Encode and Cut determine how long each row is. Copy
// checks each remaining value once, while it copies it into the request.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/request.h"
#include "server/protocol/inputs.h"
#include "server/protocol/tensors.h"
#include "server/protocol/text_rows.h"

namespace sluice {

class Prompt {
 public:
  static absl::StatusOr<Prompt> Read(const InputTensors& inputs, const Model& model,
                                     int32_t max_rows);

  int64_t rows() const { return rows_; }
  bool embeds() const { return floats_.data != nullptr; }

  // Encodes texts as tokens; has no effect on other prompts.
  absl::Status Encode();
  // Cuts rows longer than `most` as `truncation` says, or returns an error for them. Of texts, the
  // tokens that their template puts around them stay.
  absl::Status Cut(Truncation truncation, int64_t most);
  // Fills the request's tokens, inputs and types.
  absl::Status Copy(const Model& model, Request* request) const;

  // These require that Cut has been called.
  int32_t longest() const { return *std::max_element(lengths_.begin(), lengths_.end()); }
  int64_t cut_tokens() const { return cut_tokens_; }  // over all rows
  // Returns the lengths of the rows. Must be called last.
  std::vector<int32_t> TakeLengths() { return std::move(lengths_); }

 private:
  absl::Status ReadLengths(const InputTensor& tensor, int64_t rows, int64_t columns);
  absl::Status CopyIds(const Model& model, Request* request) const;
  absl::Status CopyFloats(Request* request) const;
  absl::Status CopyTypes(const Model& model, Request* request) const;
  absl::Status TooLong(int64_t row, int64_t most) const;

  int64_t rows_ = 0;
  IntMatrix ids_;
  FloatRows floats_;
  IntMatrix types_;
  TextRows texts_;                // without rows if the prompt is no text
  std::vector<int32_t> lengths_;  // per row
  std::vector<int32_t> skipped_;  // per row, the tokens cut at its beginning; empty if none are
  int64_t cut_tokens_ = 0;
};

}  // namespace sluice
