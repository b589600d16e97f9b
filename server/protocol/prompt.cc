#include "server/protocol/prompt.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/interruption.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

// Where texts are cut, how many bytes they may at least have for each of the model's positions.
constexpr int64_t kCutBytesPerToken = 256;

// The limit on the length of a row before it is cut, which may exceed the model's positions. No
// message is large enough to reach it.
constexpr int64_t kMaxColumns = int64_t{1} << 28;

absl::Status TokenError(int64_t row, int64_t position, int64_t id, int64_t vocab) {
  return InputError("input_ids", absl::StrCat("[", row, ", ", position, "] is ", id,
                                              "; expected 0 to ", vocab - 1));
}

int64_t Sum(const std::vector<int32_t>& values) {
  int64_t sum = 0;
  for (const int32_t value : values) sum += value;
  return sum;
}

}  // namespace

absl::StatusOr<Prompt> Prompt::Read(const InputTensors& inputs, const Model& model,
                                    int32_t max_rows) {
  const Extent rows{1, max_rows};
  const Extent columns{1, kMaxColumns};
  Prompt prompt;
  if (inputs.has(Input::kTextInput)) {
    SLUICE_ASSIGN_OR_RETURN(prompt.texts_, ReadStrings(inputs.of(Input::kTextInput), rows));
    prompt.rows_ = std::ssize(prompt.texts_);
    return prompt;
  }
  int64_t length = 0;
  if (inputs.has(Input::kInputsEmbeds)) {
    SLUICE_ASSIGN_OR_RETURN(FloatRows floats, ReadFloats(inputs.of(Input::kInputsEmbeds), rows,
                                                         columns, model.config.input_width));
    prompt.floats_ = floats;
    prompt.rows_ = floats.rows;
    length = floats.columns;
  } else {
    SLUICE_ASSIGN_OR_RETURN(IntMatrix ids, ReadInts(inputs.of(Input::kInputIds),
                                                    /*int64_allowed=*/true, rows, columns));
    prompt.ids_ = ids;
    prompt.rows_ = ids.rows;
    length = ids.columns;
  }
  SLUICE_RETURN_IF_ERROR(prompt.ReadLengths(inputs.of(Input::kInputLengths), prompt.rows_, length));
  return prompt;
}

absl::Status Prompt::ReadLengths(const InputTensor& tensor, int64_t rows, int64_t columns) {
  lengths_.assign(rows, static_cast<int32_t>(columns));
  if (tensor.header == nullptr) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(IntMatrix lengths,
                          ReadInts(tensor, /*int64_allowed=*/false, {rows, rows}, {1, 1}));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t length = lengths.At(row, 0);
    if (length < 1 || length > columns) {
      return InputError("input_lengths",
                        absl::StrCat("[", row, "] is ", length, "; expected 1 to ", columns));
    }
    lengths_[row] = length;
  }
  return absl::OkStatus();
}

int64_t Prompt::LeastEncoded(const Model& model) const {
  int64_t bytes = 0;
  for (const std::string_view text : texts_) bytes += std::ssize(text);
  return texts_.empty() ? 0 : bytes / model.tokenizer->longest_token_bytes();
}

absl::Status Prompt::EncodeRow(const Model& model, bool cuts, size_t row) {
  const std::string_view text = texts_[row];
  const int64_t positions = model.config.max_positions;
  const int64_t longest = model.tokenizer->longest_token_bytes();
  const int64_t most_bytes = positions * (cuts ? std::max(longest, kCutBytesPerToken) : longest);
  if (std::ssize(text) > most_bytes) {
    return InputError(
        "text_input",
        absl::StrCat("[", row, "] has ", text.size(), " bytes; the limit is ", most_bytes, " (",
                     most_bytes / positions, " for each of the model's max_positions)"));
  }
  const int64_t most = cuts ? std::numeric_limits<int32_t>::max() : positions;
  const absl::StatusOr<std::vector<int32_t>> tokens = model.tokenizer->Encode(text, most);
  SLUICE_RETURN_IF_ERROR(CheckInterruption());
  if (!tokens.ok()) {
    return InputError("text_input",
                      absl::StrCat("[", row, "] is refused: ", tokens.status().message()));
  }
  if (tokens->empty() || std::ssize(*tokens) > most) {
    return InputError(
        "text_input",
        absl::StrCat("[", row, "] has ", tokens->empty() ? "0" : absl::StrCat("more than ", most),
                     " tokens; expected 1 to ", positions,
                     " (the model's max_positions; the parameter truncate has longer rows cut)"));
  }
  encoded_.insert(encoded_.end(), tokens->begin(), tokens->end());
  lengths_.push_back(std::ssize(*tokens));
  return absl::OkStatus();
}

absl::Status Prompt::Encode(const Model& model, Truncation truncation) {
  for (size_t row = 0; row < texts_.size(); ++row) {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    SLUICE_RETURN_IF_ERROR(EncodeRow(model, truncation != Truncation::kError, row));
  }
  return absl::OkStatus();
}

absl::Status Prompt::Cut(Truncation truncation, int64_t most) {
  const auto longest = std::max_element(lengths_.begin(), lengths_.end());
  if (*longest <= most) return absl::OkStatus();
  if (truncation == Truncation::kError) {
    const absl::string_view name =
        !texts_.empty() ? "text_input" : (embeds() ? "inputs_embeds" : "input_ids");
    return InputError(name, absl::StrCat("[", longest - lengths_.begin(), "] has ", *longest,
                                         " tokens; expected 1 to ", most,
                                         " (the model's max_positions; the parameter truncate has "
                                         "longer rows cut)"));
  }
  whole_ = lengths_;
  skipped_.assign(lengths_.size(), 0);
  for (size_t row = 0; row < lengths_.size(); ++row) {
    const int64_t cut = std::max<int64_t>(lengths_[row] - most, 0);
    cut_tokens_ += cut;
    lengths_[row] -= cut;
    if (truncation == Truncation::kLeft) skipped_[row] = cut;
  }
  return absl::OkStatus();
}

absl::Status Prompt::Copy(const Model& model, Request* request) const {
  request->tokens.reserve(Sum(lengths_));
  if (embeds()) return CopyFloats(request);
  if (texts_.empty()) return CopyIds(model, request);
  CopyEncoded(request);
  return absl::OkStatus();
}

absl::Status Prompt::CopyIds(const Model& model, Request* request) const {
  const int64_t vocab = model.config.vocab_size;
  for (int64_t row = 0; row < rows_; ++row) {
    const int32_t first = skipped_.empty() ? 0 : skipped_[row];
    for (int32_t position = first; position < first + lengths_[row]; ++position) {
      const int64_t id = ids_.At(row, position);
      if (id < 0 || id >= vocab) return TokenError(row, position, id, vocab);
      request->tokens.push_back(id);
    }
  }
  return absl::OkStatus();
}

absl::Status Prompt::CopyFloats(Request* request) const {
  const int64_t width = floats_.width;
  const int64_t total = Sum(lengths_);
  request->tokens.assign(total, 0);
  request->inputs.resize(total * width);
  float* out = request->inputs.data();
  for (int64_t row = 0; row < rows_; ++row) {
    const int32_t first = skipped_.empty() ? 0 : skipped_[row];
    for (int32_t position = first; position < first + lengths_[row]; ++position, out += width) {
      floats_.Read(row, position, out);
      const float* bad = std::find_if(out, out + width, [](float x) { return !std::isfinite(x); });
      if (bad == out + width) continue;
      return InputError("inputs_embeds",
                        absl::StrCat("[", row, ", ", position, ", ", bad - out, "] is not finite"));
    }
  }
  return absl::OkStatus();
}

void Prompt::CopyEncoded(Request* request) const {
  auto text = encoded_.begin();
  for (size_t row = 0; row < lengths_.size(); ++row) {
    const auto first = text + (skipped_.empty() ? 0 : skipped_[row]);
    request->tokens.insert(request->tokens.end(), first, first + lengths_[row]);
    text += whole_.empty() ? lengths_[row] : whole_[row];
  }
}

}  // namespace sluice
