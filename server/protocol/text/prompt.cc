#include "server/protocol/text/prompt.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
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
                                    int32_t max_rows, bool apart) {
  const Extent rows{1, max_rows};
  const Extent columns{1, kMaxColumns};
  Prompt prompt;
  if (apart) return ReadApart(inputs, model, rows);
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

absl::StatusOr<Prompt> Prompt::ReadApart(const InputTensors& inputs, const Model& model,
                                         Extent rows) {
  Prompt prompt;
  SLUICE_ASSIGN_OR_RETURN(prompt.texts_, TextRows::ReadOne(inputs, Input::kTextInput, model, rows));
  const int64_t queries = prompt.texts_.rows();
  SLUICE_ASSIGN_OR_RETURN(prompt.documents_,
                          TextRows::ReadOne(inputs, Input::kTextPairInput, model,
                                            queries == 1 ? rows : Extent{queries, queries}));
  prompt.rows_ = queries + prompt.documents_.rows();
  if (prompt.rows_ <= rows.max) return prompt;
  return InputError(
      "text_pair_input",
      absl::StrCat("brings the request to ", prompt.rows_, " rows; each query and each ",
                   "document is a row, and the maximum is ", rows.max,
                   " (server.grpc.max_rows). Send fewer documents"));
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
  const int64_t bytes = texts_.bytes() + documents_.bytes();
  return texts_.rows() == 0 ? 0 : bytes / model.tokenizer->longest_token_bytes();
}

absl::Status Prompt::Encode(std::string_view prompt, TextTask task, Truncation truncation,
                            bool located, bool windows, const Model& model) {
  if (texts_.rows() == 0) return absl::OkStatus();
  if (queries() > 0) {
    const auto encode = [&](TextRows& texts, TextTask of_texts) {
      const NamedPrompt* const named = model.config.serving.PromptOf(of_texts);
      return texts.Encode(named == nullptr ? std::string_view() : named->text, of_texts, truncation,
                          located);
    };
    SLUICE_RETURN_IF_ERROR(encode(texts_, TextTask::kQuery));
    SLUICE_RETURN_IF_ERROR(encode(documents_, TextTask::kDocument));
  } else {
    SLUICE_RETURN_IF_ERROR(texts_.Encode(prompt, task, truncation, located, windows));
  }
  for (int64_t row = 0; row < rows_; ++row) {
    const auto [part, index] = PartOf(row);
    lengths_.push_back(static_cast<int32_t>(part->LengthOf(index)));
  }
  return absl::OkStatus();
}

absl::Status Prompt::EncodeWords(const std::vector<std::string>& labels, Truncation truncation) {
  SLUICE_RETURN_IF_ERROR(texts_.EncodeWords(labels, truncation != Truncation::kError));
  cut_tokens_ = texts_.cut_word_tokens();
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

absl::Status Prompt::TooLong(int64_t row, int64_t most, absl::string_view limit) const {
  const absl::string_view name =
      texts_.rows() > 0 ? "text_input" : (embeds() ? "inputs_embeds" : "input_ids");
  return InputError(
      name, absl::StrCat("[", row, "] has ", lengths_[row], " tokens",
                         texts_.pairs() ? " with its pair" : "", "; expected 1 to ", most, " (",
                         limit, "; set the parameter truncate to cut longer rows)"));
}

absl::Status Prompt::Cut(Truncation truncation, int64_t most) {
  for (size_t row = 0; row < lengths_.size(); ++row) {
    const auto [part, index] = PartOf(row);
    const int64_t of_task = part->max_length();
    const bool shorter = of_task > 0 && of_task < most;
    const int64_t limit = shorter ? of_task : most;
    const int64_t cut = std::max<int64_t>(lengths_[row] - limit, 0);
    if (cut == 0) continue;
    if (truncation == Truncation::kError) {
      return TooLong(row, limit,
                     shorter ? "the model's length for the task" : "the model's max_positions");
    }
    if (skipped_.empty()) skipped_.assign(lengths_.size(), 0);
    cut_tokens_ += cut;
    lengths_[row] -= cut;
    if (truncation == Truncation::kLeft) skipped_[row] = cut;
    TextRows& texts = part == &texts_ ? texts_ : documents_;
    if (texts.rows() > 0) SLUICE_RETURN_IF_ERROR(texts.Cut(index, truncation, limit));
  }
  return absl::OkStatus();
}

std::pair<const TextRows*, int64_t> Prompt::PartOf(int64_t row) const {
  const bool first = queries() == 0 || row < texts_.rows();
  return first ? std::pair(&texts_, row) : std::pair(&documents_, row - texts_.rows());
}

std::vector<int32_t> Prompt::Fill() {
  std::vector<int32_t> hidden;
  for (int64_t row = 0; row < texts_.rows() + documents_.rows(); ++row) {
    const auto [part, index] = PartOf(row);
    const int64_t filler = part->FillerOf(index);
    lengths_[row] += static_cast<int32_t>(filler);
    if (filler == 0 || !part->hides_filler()) continue;
    hidden.resize(lengths_.size());
    hidden[row] = static_cast<int32_t>(filler);
  }
  return hidden;
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
  if (texts_.rows() > 0) return CopyTexts(model, request);
  request->tokens.reserve(Sum(lengths_));
  SLUICE_RETURN_IF_ERROR(embeds() ? CopyFloats(request) : CopyIds(model, request));
  return types_.data == nullptr ? absl::OkStatus() : CopyTypes(model, request);
}

absl::Status Prompt::CopyTexts(const Model& model, Request* request) const {
  TypedTokens all;
  texts_.Append(&all);
  if (queries() > 0) documents_.Append(&all);
  request->tokens = std::move(all.ids);
  // A model with one type or none ignores types in its template.
  const bool typed = std::any_of(all.types.begin(), all.types.end(), [](int32_t t) { return t; });
  if (!typed || model.config.token_types < 2) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(texts_.CheckTypes(all.types));
  request->types = std::move(all.types);
  return absl::OkStatus();
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
