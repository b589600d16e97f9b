// The rows of a request that are texts, each of one text or of a pair, on their way to tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/request.h"
#include "server/protocol/tensors/inputs.h"
#include "server/protocol/tensors/tensors.h"
#include "server/protocol/text/text_windows.h"

namespace sluice {

class TextRows {
 public:
  TextRows() = default;
  // Reads text_input and text_pair_input. One text_input may stand before all texts of
  // text_pair_input. Requires that text_input is present.
  static absl::StatusOr<TextRows> Read(const InputTensors& inputs, const Model& model, Extent rows);

  int64_t rows() const { return std::ssize(texts_.back()); }
  bool pairs() const { return texts_.size() > 1; }

  // Returns the bytes of the texts.
  int64_t bytes() const;
  // Encodes the texts, each once, those that are no pairs with `prompt` before them. `located`
  // records which bytes of its text each token stands for. Returns an error for a text that is too
  // long to fit, unless `truncation` has it cut, and the errors of CheckInterruption.
  absl::Status Encode(std::string_view prompt, Truncation truncation, bool located);
  // Returns the tokens of a row before those of its text, the prompt's among them; 0 without one.
  int64_t LengthOfPrompt() const { return prompt_tokens_; }
  // Returns the tokens of a row, with those of its template.
  int64_t LengthOf(int64_t row) const;
  // Takes tokens from the beginning or the end of the row's texts until it has at most `most`, of a
  // pair from the longer text first. The tokens of the template stay. Returns an error if these are
  // more than `most` already.
  absl::Status Cut(int64_t row, Truncation truncation, int64_t most);
  // Makes rows of the windows of each text, of at most `most` tokens with their template, of which
  // neighbours share `overlap`; no other function but Copy may follow. Returns an error if windows
  // would not move on, or if there are more than `most_rows`. Requires that the texts are no pairs.
  absl::StatusOr<TextWindows> Split(int32_t overlap, int64_t most, int64_t most_rows);
  // Returns the tokens of a row of Split's.
  int64_t LengthOfWindow(int64_t row) const {
    return RowTemplate().specials() + kept_[0][row].count;
  }
  // Fills the tokens and, if one is not 0, the types of the request.
  absl::Status Copy(Request* request) const;
  // Returns the bytes that the tokens of all rows stand for, those of no prompt. Requires that the
  // texts are no pairs and were encoded as located.
  std::vector<ByteRange> Ranges() const;

 private:
  // The tokens of a text that its row keeps.
  struct Kept {
    int64_t begin, count;  // in tokens_
  };

  const TextTemplate& RowTemplate() const;
  absl::Status MeasurePrompt(std::string_view prompt);
  absl::StatusOr<Kept> EncodeText(Input input, int64_t index, std::string_view text, bool cuts);
  absl::Status CheckTypes(const std::vector<int32_t>& types) const;

  const Model* model_ = nullptr;
  int64_t prompt_tokens_ = 0;
  int32_t prompt_bytes_ = 0;
  bool located_ = false;
  std::vector<std::vector<std::string_view>> texts_ = {
      {}};                               // the first ones and, of pairs, the others
  std::vector<int32_t> tokens_;          // of all texts
  std::vector<ByteRange> ranges_;        // of these; empty unless they are located
  std::vector<std::vector<Kept>> kept_;  // the first ones and the others, by row
};

}  // namespace sluice
