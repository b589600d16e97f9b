// The prompt rows of a request: reads tensors or texts and converts them to tokens or vectors.
//
// Read checks shapes and sizes but not values. Encode and Cut determine how long each row is. Copy
// checks each remaining value once, while it copies it into the request.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/request.h"
#include "server/protocol/tensors/inputs.h"
#include "server/protocol/tensors/tensors.h"
#include "server/protocol/text/text_rows.h"

namespace sluice {

class Prompt {
 public:
  // If `apart`, text_input has queries and text_pair_input documents. Each text is then a row:
  // first the queries, then the documents.
  static absl::StatusOr<Prompt> Read(const InputTensors& inputs, const Model& model,
                                     int32_t max_rows, bool apart = false);

  int64_t rows() const { return rows_; }
  bool embeds() const { return floats_.data != nullptr; }
  // Returns the number of queries that documents follow; 0 unless texts were read apart.
  int32_t queries() const {
    return documents_.rows() > 0 ? static_cast<int32_t>(texts_.rows()) : 0;
  }

  // Returns whether one of the model's prompts can be put before this prompt.
  bool takes_prompt() const { return texts_.rows() > 0 && !texts_.pairs() && queries() == 0; }
  // Leaves out the tokens of the tokenizer's template. Requires takes_prompt().
  void LeaveOutTemplate() { texts_.LeaveOutTemplate(); }
  // Returns whether the rows are the model's frame with a query and a document each.
  bool framed() const { return texts_.framed(); }
  // Returns a lower bound on the tokens of the encoded texts, from their bytes; 0 for other
  // prompts.
  int64_t LeastEncoded(const Model& model) const;
  // Encodes texts as tokens, with `prompt` before each text that is not a pair, by the rules of
  // `task`. In a frame, `prompt` is the instruction. Stops when a text is found to be too long,
  // unless `truncation` cuts it. Has no effect on other prompts. `located` records the bytes of
  // each token in its text; `windows` keeps the tokens that `truncation` would cut. Queries and
  // documents have their own tasks and prompts instead. Returns the errors of CheckInterruption.
  absl::Status Encode(std::string_view prompt, TextTask task, Truncation truncation, bool located,
                      bool windows, const Model& model);
  // Called instead of Encode for an extraction; see TextRows::EncodeWords. Requires takes_prompt().
  absl::Status EncodeWords(const std::vector<std::string>& labels, Truncation truncation);
  // Returns the labels and words of a row. Requires EncodeWords and Cut.
  TextRows::RowWords WordsOf(int64_t row) const { return texts_.WordsOf(row); }
  // Cuts rows longer than `most` according to `truncation`, or returns an error for them. The
  // template's tokens around texts are kept.
  absl::Status Cut(Truncation truncation, int64_t most);
  // Fills rows as the task's rules state, after Cut. Returns the number of last positions of each
  // row that no position attends to; empty if there are none.
  std::vector<int32_t> Fill();
  // Called instead of Cut: makes rows from the windows of each text; see TextRows::Split. Ranges
  // must be called before it.
  absl::StatusOr<TextWindows> Split(int32_t overlap, int64_t most, int64_t most_rows);
  // Fills the request's tokens, inputs and types.
  absl::Status Copy(const Model& model, Request* request) const;

  // The following require that Cut or Split has been called.
  // Returns the number of tokens before the text if a prompt was put there, or 0. Returns an error
  // for a row that has no more tokens.
  absl::StatusOr<int32_t> LengthOfPrompt() const;
  int32_t longest() const { return *std::max_element(lengths_.begin(), lengths_.end()); }
  // Returns the lengths of the texts that Split divided into these windows.
  std::vector<int32_t> LengthsOf(const TextWindows& windows) const {
    return LengthsOfTexts(windows, lengths_);
  }
  int64_t cut_tokens() const { return cut_tokens_; }  // total over all rows
  // Returns the bytes of each token. Requires texts that were encoded as located.
  std::vector<ByteRange> Ranges() const { return texts_.Ranges(); }
  const std::vector<int32_t>& lengths() const { return lengths_; }
  // Returns the lengths of the rows. Must be called last.
  std::vector<int32_t> TakeLengths() { return std::move(lengths_); }

 private:
  static absl::StatusOr<Prompt> ReadApart(const InputTensors& inputs, const Model& model,
                                          Extent rows);
  absl::Status ReadLengths(const InputTensor& tensor, int64_t rows, int64_t columns);
  absl::Status CopyIds(const Model& model, Request* request) const;
  absl::Status CopyFloats(Request* request) const;
  absl::Status CopyTypes(const Model& model, Request* request) const;
  absl::Status TooLong(int64_t row, int64_t most, absl::string_view limit) const;

  int64_t rows_ = 0;
  IntMatrix ids_;
  FloatRows floats_;
  IntMatrix types_;
  // Returns the texts that the row belongs to, and its index there.
  std::pair<const TextRows*, int64_t> PartOf(int64_t row) const;
  absl::Status CopyTexts(const Model& model, Request* request) const;

  TextRows texts_;                // without rows if the prompt is not text
  TextRows documents_;            // the rows after those of texts_, if texts were read apart
  std::vector<int32_t> lengths_;  // per row
  std::vector<int32_t> skipped_;  // per row, the tokens cut at its start; empty if no row was cut
  int64_t cut_tokens_ = 0;
};

}  // namespace sluice
