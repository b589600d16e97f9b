#include "server/protocol/text/prompt.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/interruption.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

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
    SLUICE_ASSIGN_OR_RETURN(prompt.texts_, TextRows::Read(inputs, model, rows));
    prompt.rows_ = prompt.texts_.rows();
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
  if (inputs.has(Input::kTokenTypeIds)) {
    SLUICE_ASSIGN_OR_RETURN(prompt.types_,
                            ReadInts(inputs.of(Input::kTokenTypeIds), /*int64_allowed=*/true,
                                     {prompt.rows_, prompt.rows_}, {length, length}));
  }
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
  return texts_.rows() == 0 ? 0 : texts_.bytes() / model.tokenizer->longest_token_bytes();
}

absl::Status Prompt::Encode(std::string_view prompt, Truncation truncation, bool located) {
  if (texts_.rows() == 0) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(texts_.Encode(prompt, truncation, located));
  for (int64_t row = 0; row < rows_; ++row) {
    lengths_.push_back(static_cast<int32_t>(texts_.LengthOf(row)));
  }
  return absl::OkStatus();
}

absl::StatusOr<int32_t> Prompt::LengthOfPrompt() const {
  const int64_t length = texts_.rows() > 0 ? texts_.LengthOfPrompt() : 0;
  const auto shortest = std::min_element(lengths_.begin(), lengths_.end());
  if (*shortest > length) return static_cast<int32_t>(length);
  return InputError("text_input", absl::StrCat("[", shortest - lengths_.begin(), "] has ",
                                               *shortest, " tokens, and the embedding leaves out ",
                                               length, " of the prompt; expected a longer text"));
}

absl::Status Prompt::TooLong(int64_t row, int64_t most) const {
  const absl::string_view name =
      texts_.rows() > 0 ? "text_input" : (embeds() ? "inputs_embeds" : "input_ids");
  return InputError(
      name,
      absl::StrCat("[", row, "] has ", lengths_[row], " tokens",
                   texts_.pairs() ? " with its pair" : "", "; expected 1 to ", most,
                   " (the model's max_positions; set the parameter truncate to cut longer rows)"));
}

absl::Status Prompt::Cut(Truncation truncation, int64_t most) {
  const auto longest = std::max_element(lengths_.begin(), lengths_.end());
  if (*longest <= most) return absl::OkStatus();
  if (truncation == Truncation::kError) return TooLong(longest - lengths_.begin(), most);
  skipped_.assign(lengths_.size(), 0);
  for (size_t row = 0; row < lengths_.size(); ++row) {
    const int64_t cut = std::max<int64_t>(lengths_[row] - most, 0);
    if (cut == 0) continue;
    cut_tokens_ += cut;
    lengths_[row] -= cut;
    if (truncation == Truncation::kLeft) skipped_[row] = cut;
    if (texts_.rows() > 0) SLUICE_RETURN_IF_ERROR(texts_.Cut(row, truncation, most));
  }
  return absl::OkStatus();
}

absl::StatusOr<TextWindows> Prompt::Split(int32_t overlap, int64_t most, int64_t most_rows) {
  SLUICE_ASSIGN_OR_RETURN(TextWindows windows, texts_.Split(overlap, most, most_rows));
  lengths_.clear();
  const int64_t rows = std::accumulate(windows.counts.begin(), windows.counts.end(), int64_t{0});
  for (int64_t row = 0; row < rows; ++row) {
    lengths_.push_back(static_cast<int32_t>(texts_.LengthOfWindow(row)));
  }
  return windows;
}

absl::Status Prompt::Copy(const Model& model, Request* request) const {
  if (texts_.rows() > 0) return texts_.Copy(request);
  request->tokens.reserve(Sum(lengths_));
  SLUICE_RETURN_IF_ERROR(embeds() ? CopyFloats(request) : CopyIds(model, request));
  return types_.data == nullptr ? absl::OkStatus() : CopyTypes(model, request);
}

// Types that are all 0 are left out, as if the input were absent.
absl::Status Prompt::CopyTypes(const Model& model, Request* request) const {
  bool any = false;
  for (int64_t row = 0; row < rows_; ++row) {
    const int32_t first = skipped_.empty() ? 0 : skipped_[row];
    for (int32_t position = first; position < first + lengths_[row]; ++position) {
      const int64_t type = types_.At(row, position);
      if (type < 0 || type >= model.config.token_types) {
        return InputError("token_type_ids",
                          absl::StrCat("[", row, ", ", position, "] is ", type, "; expected 0 to ",
                                       model.config.token_types - 1));
      }
      any |= type != 0;
      request->types.push_back(static_cast<int32_t>(type));
    }
  }
  if (!any) request->types.clear();
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

}  // namespace sluice
