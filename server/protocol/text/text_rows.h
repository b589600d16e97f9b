// The rows of a text request, each with one text or a pair of texts, until they are tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/work_memory.h"
#include "engine/model/pair_frame.h"
#include "engine/model/words.h"
#include "engine/request.h"
#include "server/protocol/tensors/inputs.h"
#include "server/protocol/tensors/tensors.h"
#include "server/protocol/text/text_windows.h"

namespace sluice {

// Returns whether a text could not be encoded because the account of the work's memory refused it.
bool IsRefusalForMemory(const absl::Status& status);

class TextRows {
 public:
  TextRows() = default;
  // Reads text_input and text_pair_input. A single text_input may be paired with all texts of
  // text_pair_input. If the model has a frame for pairs, a pair is a query and a document, and its
  // row is the text of the frame. Requires that text_input is present.
  static absl::StatusOr<TextRows> Read(const InputTensors& inputs, const Model& model, Extent rows);
  // Reads only `input`, whose texts are not part of pairs.
  static absl::StatusOr<TextRows> ReadOne(const InputTensors& inputs, Input input,
                                          const Model& model, Extent rows);

  int64_t rows() const { return std::ssize(texts_.back()); }
  bool pairs() const { return texts_.size() > 1; }
  bool framed() const { return frame_ != nullptr; }

  // Leaves out the template's tokens. Requires that no text is part of a pair.
  void LeaveOutTemplate() { bare_ = true; }
  // Returns the bytes of the texts that Encode will encode. A frame's constant text is not counted.
  int64_t bytes() const;
  // Encodes each text once, with `prompt` before each text that is not part of a pair. Texts that
  // are not pairs follow the model's rules of `task`. In a frame, `prompt` is the instruction, and
  // each row is encoded as one text. `located` records the bytes of each token in its text.
  // `windows` keeps all tokens of texts that `truncation` would cut, for Split. Returns
  // an error for a text that is too long, unless `truncation` cuts it, and the errors of
  // CheckInterruption.
  absl::Status Encode(std::string_view prompt, TextTask task, Truncation truncation, bool located,
                      bool windows = false);
  // Encodes labels and the words of each text for the model's extraction: its texts around labels,
  // a marker and the tokens of each label, a separator, and each word by itself. If rows have no
  // labels, only checks the labels. Words without tokens are left out. Returns
  // an error for a label without tokens or with a marker, for labels that fill a row, and for a
  // text with more words than the model's maximum, unless `cuts`. Otherwise works as Encode.
  absl::Status EncodeWords(const std::vector<std::string>& labels, bool cuts);
  // The labels and words of a row that EncodeWords encoded, and Cut kept.
  struct RowWords {
    std::vector<int32_t> positions;    // of the gate, if any, of the labels and of the words
    std::vector<TextSpan> characters;  // of the words; empty for an added word
  };
  RowWords WordsOf(int64_t row) const;
  // Returns the number of tokens of words beyond the model's maximum.
  int64_t cut_word_tokens() const { return cut_word_tokens_; }
  // Returns the number of tokens before a row's text, including the prompt's; 0 without a prompt.
  int64_t LengthOfPrompt() const { return prompt_tokens_; }
  // Returns the number of tokens of a row, including its template's.
  int64_t LengthOf(int64_t row) const;
  // Returns the most tokens of a row by the rules of its task; 0 for the model's limit.
  int64_t max_length() const { return rules_ == nullptr ? 0 : rules_->max_length; }
  // Returns the number of tokens that Copy adds after the row to fill it.
  int64_t FillerOf(int64_t row) const;
  // Returns whether no token attends to the filler.
  bool hides_filler() const { return rules_ != nullptr && rules_->hides_filler; }
  // Removes tokens from the start or the end of the row's texts until it has at most `most`; in a
  // pair, from the longer text first. Keeps the template's tokens. Returns an error if these
  // already exceed `most`. A framed row keeps the tokens that end the frame if its end is cut, as
  // in sentence-transformers.
  absl::Status Cut(int64_t row, Truncation truncation, int64_t most);
  // Makes rows from the windows of each text. A window has at most `most` tokens including its
  // template, and neighbours share `overlap` tokens. Only Copy may be called afterwards. Returns an
  // error if windows would not advance, or if there are more than `most_rows`. Requires that no
  // text is part of a pair.
  absl::StatusOr<TextWindows> Split(int32_t overlap, int64_t most, int64_t most_rows);
  // Returns the number of tokens of a row that Split made.
  int64_t LengthOfWindow(int64_t row) const {
    return RowTemplate().specials() + kept_[0][row].count;
  }
  // Appends the tokens of all rows and their types.
  void Append(TypedTokens* all) const;
  // Returns an error if the model lacks one of the types.
  absl::Status CheckTypes(const std::vector<int32_t>& types) const;
  // Returns the bytes in its text of each token of all rows. Tokens of the template and the prompt
  // have no bytes. Requires that no text is part of a pair and that texts were encoded as located.
  std::vector<ByteRange> Ranges() const;

 private:
  // The tokens of a text that its row keeps. If the text will be cut, tokens_ has only the tokens
  // that may remain: the first ones, or the last ones if the start is cut. Until then `begin` and
  // `count` include the others.
  struct Kept {
    int64_t begin, count;  // in tokens_
  };

  // A word of a text, and its first token among the row's tokens.
  struct EncodedWord {
    TextSpan characters;
    int32_t token;
  };

  const TextTemplate& RowTemplate() const;
  // Returns the number of tokens of the template before a row's first text.
  int32_t TokensBefore() const;
  absl::Status EncodeLabels(const std::vector<std::string>& labels);
  absl::Status EncodeLabel(const std::vector<std::string>& labels, size_t index);
  absl::Status EncodeAround(const std::vector<std::string>& texts);
  absl::Status EncodeWordsOf(int64_t index, std::string_view text, bool cuts);
  // Return the limits of a text.
  int64_t MostBytes(bool cuts) const;
  int64_t MostTokens(bool cuts) const;
  absl::Status TooManyBytes(Input input, int64_t index, std::string_view text, bool cuts,
                            absl::string_view remedy) const;
  // Returns the text, or its first characters if it has too many bytes and its end is cut. Returns
  // an error for another text of too many bytes.
  absl::StatusOr<std::string_view> BytesToEncode(Input input, int64_t index, std::string_view text,
                                                 Truncation truncation) const;
  absl::Status Keep(std::span<const int32_t> tokens);
  absl::Status EncodeSides(std::string_view prompt, TextTask task, Truncation truncation);
  absl::Status EncodeFramed(std::string_view instruction, Truncation truncation);
  absl::Status CutFramed(Kept& row, Truncation truncation, int64_t most);
  int64_t Filler(int64_t length) const;
  absl::Status MeasurePrompt(std::string_view prompt);
  // Appends the text's tokens, without those that Cut removes in any case.
  absl::StatusOr<Kept> EncodeText(Input input, int64_t index, std::string_view text,
                                  Truncation truncation);
  const Tokenizer& RowTokenizer() const;

  const Model* model_ = nullptr;
  bool bare_ = false;                 // whether the template's tokens are left out
  const PairFrame* frame_ = nullptr;  // of pairs; belongs to the model
  std::string instruction_;
  std::optional<std::vector<int32_t>> tail_;  // of the frame, once it is needed
  const TaskRules* rules_ = nullptr;          // of the task, unless the rows are pairs
  Input input_ = Input::kTextInput;           // of the first texts
  int64_t prompt_tokens_ = 0;
  int32_t prompt_bytes_ = 0;
  bool located_ = false;
  bool windows_ = false;
  std::vector<std::vector<std::string_view>> texts_ = {
      {}};                         // the first texts and, for pairs, the second texts
  WorkMemory memory_;              // of tokens_ and ranges_
  std::vector<int32_t> tokens_;    // of all texts
  std::vector<ByteRange> ranges_;  // of the tokens; empty unless they are located
  // The first and the second texts, by row. A framed row is one text.
  std::vector<std::vector<Kept>> kept_;
  std::vector<int32_t> label_tokens_;            // labels and separator, of every row
  std::vector<int32_t> label_places_;            // of the states of the gate and of each label
  std::vector<std::vector<EncodedWord>> words_;  // of each row
  int64_t cut_word_tokens_ = 0;
};

}  // namespace sluice
