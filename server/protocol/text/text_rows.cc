#include "server/protocol/text/text_rows.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/interruption.h"
#include "base/reason.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

// If texts are cut, the limit on their bytes is at least this many for each position of the model.
constexpr int64_t kCutBytesPerToken = 256;

absl::string_view AsView(std::string_view text) { return {text.data(), text.size()}; }

absl::Status TextError(Input input, int64_t index, absl::string_view problem) {
  return InputError(AsView(Inputs()[static_cast<size_t>(input)].name),
                    absl::StrCat("[", index, "] ", problem));
}

// Returns whether a byte of UTF-8 continues a character.
bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Returns the number of tokens to keep of a pair's texts of `a` and `b` tokens, at most `most` in
// total. The longer text is cut to the length of the shorter one before both are cut, as
// `tokenizers` does.
std::pair<int64_t, int64_t> LongestFirst(int64_t a, int64_t b, int64_t most) {
  if (a + b <= most) return {a, b};
  const int64_t shorter = std::min(a, b);
  int64_t short_kept = most / 2, long_kept = most - most / 2;
  if (shorter <= most - shorter) {
    short_kept = shorter;
    long_kept = most - shorter;
  }
  return a <= b ? std::pair(short_kept, long_kept) : std::pair(long_kept, short_kept);
}

}  // namespace

bool IsRefusalForMemory(const absl::Status& status) {
  const Reason reason = ReasonOf(status);
  return reason == Reason::kMemory || reason == Reason::kRequest;
}

absl::StatusOr<TextRows> TextRows::Read(const InputTensors& inputs, const Model& model,
                                        Extent rows) {
  TextRows read;
  read.model_ = &model;
  SLUICE_ASSIGN_OR_RETURN(read.texts_[0], ReadStrings(inputs.of(Input::kTextInput), rows));
  if (!inputs.has(Input::kTextPairInput)) return read;
  if (model.config.serving.frame) {
    read.frame_ = &*model.config.serving.frame;
  } else if (!model.tokenizer->templates().pair) {
    return InputError("text_pair_input",
                      "is refused: the model's tokenizer has no template for pairs");
  }
  const int64_t firsts = std::ssize(read.texts_[0]);
  const Extent pairs = firsts == 1 ? rows : Extent{firsts, firsts};
  SLUICE_ASSIGN_OR_RETURN(std::vector<std::string_view> others,
                          ReadStrings(inputs.of(Input::kTextPairInput), pairs));
  read.texts_.push_back(std::move(others));
  return read;
}

absl::StatusOr<TextRows> TextRows::ReadOne(const InputTensors& inputs, Input input,
                                           const Model& model, Extent rows) {
  TextRows read;
  read.model_ = &model;
  read.input_ = input;
  SLUICE_ASSIGN_OR_RETURN(read.texts_[0], ReadStrings(inputs.of(input), rows));
  return read;
}

const Tokenizer& TextRows::RowTokenizer() const {
  return rules_ != nullptr && rules_->tokenizer ? *rules_->tokenizer : *model_->tokenizer;
}

const TextTemplate& TextRows::RowTemplate() const {
  static const TextTemplate* const only = new TextTemplate(TextTemplate::TextOnly());
  if (framed() || bare_) return *only;
  const TextTemplates& templates = model_->tokenizer->templates();
  if (pairs()) return *templates.pair;
  return rules_ != nullptr && rules_->single ? *rules_->single : templates.single;
}

int64_t TextRows::MostBytes(bool cuts) const {
  const int64_t longest = model_->tokenizer->longest_token_bytes();
  return model_->config.max_positions * (cuts ? std::max(longest, kCutBytesPerToken) : longest);
}

int64_t TextRows::MostTokens(bool cuts) const {
  return cuts ? std::numeric_limits<int32_t>::max() : model_->config.max_positions;
}

absl::Status TextRows::TooManyBytes(Input input, int64_t index, std::string_view text, bool cuts,
                                    absl::string_view remedy) const {
  const int64_t most = MostBytes(cuts);
  return TextError(input, index,
                   absl::StrCat("has ", text.size(), " bytes; the limit is ", most, " (",
                                most / model_->config.max_positions,
                                " for each of the model's max_positions; ", remedy, ")"));
}

absl::StatusOr<std::string_view> TextRows::BytesToEncode(Input input, int64_t index,
                                                         std::string_view text,
                                                         Truncation truncation) const {
  const bool cuts = truncation != Truncation::kError;
  const int64_t most = MostBytes(cuts);
  if (std::ssize(text) <= most) return text;
  if (!cuts) {
    return TooManyBytes(input, index, text, cuts, "set the parameter truncate to cut longer rows");
  }
  if (windows_) return TooManyBytes(input, index, text, cuts, "shorten the text");
  if (truncation == Truncation::kLeft) {
    return TooManyBytes(input, index, text, cuts, "shorten the text, or set truncate to right");
  }
  int64_t end = most;
  while (end > 0 && IsContinuation(text[end])) --end;
  return text.substr(0, end);
}

absl::StatusOr<TextRows::Kept> TextRows::EncodeText(Input input, int64_t index,
                                                    std::string_view text, Truncation truncation) {
  const int64_t positions = model_->config.max_positions;
  const bool cuts = truncation != Truncation::kError;
  const int64_t most = MostTokens(cuts);
  SLUICE_ASSIGN_OR_RETURN(const std::string_view read,
                          BytesToEncode(input, index, text, truncation));
  const auto tokens = located_ ? RowTokenizer().EncodeLocated(read, most, &ranges_)
                               : RowTokenizer().EncodeBare(read, most);
  SLUICE_RETURN_IF_ERROR(CheckInterruption());
  if (!tokens.ok()) {
    if (IsRefusalForMemory(tokens.status())) return tokens.status();
    return TextError(input, index, absl::StrCat("is refused: ", tokens.status().message()));
  }
  if (std::ssize(*tokens) > most) {
    return TextError(
        input, index,
        absl::StrCat(
            "has more than ", most, " tokens; expected 1 to ", most,
            " (the model's max_positions; set the parameter truncate to cut longer rows)"));
  }
  // The end of the bytes that were read may have other tokens than in the whole text. It must not
  // be a part of the row.
  if (read.size() < text.size() && std::ssize(*tokens) < 2 * positions) {
    return TooManyBytes(input, index, text, cuts,
                        absl::StrCat("shorten the text, whose first ", read.size(),
                                     " bytes have only ", tokens->size(), " tokens"));
  }
  // Cut leaves at most `positions` tokens of the text, so others are dropped now.
  const int64_t count = std::ssize(*tokens), stored = windows_ ? count : std::min(count, positions);
  const int64_t skipped = truncation == Truncation::kLeft ? count - stored : 0;
  // A list that grows exists twice for a time.
  const int64_t bytes_of_token = sizeof(int32_t) + (located_ ? sizeof(ByteRange) : 0);
  SLUICE_RETURN_IF_ERROR(memory_.Hold(2 * (std::ssize(tokens_) + stored) * bytes_of_token));
  const Kept kept{std::ssize(tokens_) - skipped, count};
  const auto first = tokens->begin() + skipped;
  tokens_.insert(tokens_.end(), first, first + stored);
  if (located_) {
    const auto ranges = ranges_.end() - count;
    ranges_.erase(ranges + skipped + stored, ranges_.end());
    ranges_.erase(ranges, ranges + skipped);
  }
  return kept;
}

absl::Status TextRows::MeasurePrompt(std::string_view prompt) {
  SLUICE_ASSIGN_OR_RETURN(const auto tokens,
                          RowTokenizer().EncodeBare(prompt, Tokenizer::kNoLimit));
  prompt_tokens_ = std::ssize(tokens) + TokensBefore();
  return absl::OkStatus();
}

int32_t TextRows::TokensBefore() const {
  const std::vector<TextTemplate::Element>& parts = RowTemplate().parts;
  const auto text = std::ranges::find(parts, 0, &TextTemplate::Element::text);
  return static_cast<int32_t>(text - parts.begin());
}

int64_t TextRows::bytes() const {
  int64_t bytes = 0;
  for (const std::vector<std::string_view>& side : texts_) {
    for (const std::string_view text : side) bytes += std::ssize(text);
  }
  const bool repeats = framed() && std::ssize(texts_[0]) == 1;  // each row has the query
  return repeats ? bytes + std::ssize(texts_[0][0]) * (rows() - 1) : bytes;
}

absl::Status TextRows::Encode(std::string_view prompt, TextTask task, Truncation truncation,
                              bool located, bool windows) {
  located_ = located;
  windows_ = windows;
  SLUICE_RETURN_IF_ERROR(framed() ? EncodeFramed(prompt, truncation)
                                  : EncodeSides(prompt, task, truncation));
  for (int64_t row = 0; row < rows(); ++row) {
    if (LengthOf(row) > 0) continue;
    return TextError(input_, row,
                     absl::StrCat("has 0 tokens; expected 1 to ", model_->config.max_positions,
                                  " (the model's max_positions)"));
  }
  return absl::OkStatus();
}

absl::Status TextRows::EncodeSides(std::string_view prompt, TextTask task, Truncation truncation) {
  if (!pairs()) rules_ = &model_->tasks.Of(task);
  const bool prompted = !prompt.empty() && !pairs();
  if (prompted) SLUICE_RETURN_IF_ERROR(MeasurePrompt(prompt));
  prompt_bytes_ = prompted ? static_cast<int32_t>(prompt.size()) : 0;
  for (size_t side = 0; side < texts_.size(); ++side) {
    std::vector<Kept>& kept = kept_.emplace_back();
    for (const std::string_view text : texts_[side]) {
      const std::string whole = prompted ? absl::StrCat(AsView(prompt), AsView(text)) : "";
      SLUICE_RETURN_IF_ERROR(CheckInterruption());
      SLUICE_ASSIGN_OR_RETURN(const Kept tokens,
                              EncodeText(side == 0 ? input_ : Input::kTextPairInput,
                                         std::ssize(kept), prompted ? whole : text, truncation));
      kept.push_back(tokens);
    }
    kept.resize(rows(), kept.front());
  }
  return absl::OkStatus();
}

absl::Status TextRows::Keep(std::span<const int32_t> tokens) {
  // A list that grows exists twice for a time.
  SLUICE_RETURN_IF_ERROR(
      memory_.Hold(2 * (std::ssize(tokens_) + std::ssize(tokens)) * int64_t{sizeof(int32_t)}));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return absl::OkStatus();
}

absl::Status TextRows::EncodeLabel(const std::vector<std::string>& labels, size_t index) {
  const TextTasks& tasks = model_->tasks;
  const auto refuse = [index](absl::string_view problem) {
    return ReasonError(Reason::kParameter,
                       absl::StrCat("parameter labels: [", index, "] ", problem));
  };
  const std::string& label = labels[index];
  if (std::find(labels.begin(), labels.begin() + index, label) != labels.begin() + index) {
    return refuse("is the same as an earlier label; send each label once");
  }
  const Model& encoder = model_->labels == nullptr ? *model_ : *model_->labels;
  const auto tokens = encoder.tokenizer->EncodeBare(label, encoder.config.max_positions);
  SLUICE_RETURN_IF_ERROR(CheckInterruption());
  if (!tokens.ok()) {
    if (IsRefusalForMemory(tokens.status())) return tokens.status();
    return refuse(absl::StrCat("is refused: ", tokens.status().message()));
  }
  if (tokens->empty()) return refuse("has 0 tokens; expected a text with at least 1");
  if (model_->labels != nullptr) {
    const int64_t specials = encoder.tokenizer->templates().single.specials();
    const int64_t most = std::min<int64_t>(encoder.config.max_positions, kMostLabelTokens);
    if (std::ssize(*tokens) + specials <= most) return absl::OkStatus();
    return refuse(absl::StrCat("has more than ", most - specials,
                               " tokens of the encoder of labels; expected a shorter text"));
  }
  for (const int32_t token : *tokens) {
    if (token == tasks.label_marker || token == tasks.separator) {
      return refuse("has the text of the model's marker or separator; remove it");
    }
  }
  const bool next = model_->config.serving.extraction->label_state == LabelState::kNext;
  label_places_.push_back(static_cast<int32_t>(std::ssize(label_tokens_)) + (next ? 1 : 0));
  label_tokens_.push_back(tasks.label_marker);
  label_tokens_.insert(label_tokens_.end(), tokens->begin(), tokens->end());
  return absl::OkStatus();
}

absl::Status TextRows::EncodeAround(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    if (text == model_->config.serving.extraction->gate) {
      label_places_.push_back(static_cast<int32_t>(std::ssize(label_tokens_)));
    }
    SLUICE_ASSIGN_OR_RETURN(const auto tokens,
                            model_->tokenizer->EncodeBare(text, model_->config.max_positions));
    label_tokens_.insert(label_tokens_.end(), tokens.begin(), tokens.end());
  }
  return absl::OkStatus();
}

absl::Status TextRows::EncodeLabels(const std::vector<std::string>& labels) {
  const ExtractionConfig& extraction = *model_->config.serving.extraction;
  if (!extraction.labels_in_row()) {
    for (size_t i = 0; i < labels.size(); ++i) SLUICE_RETURN_IF_ERROR(EncodeLabel(labels, i));
    return absl::OkStatus();
  }
  SLUICE_RETURN_IF_ERROR(EncodeAround(extraction.before_labels));
  for (size_t i = 0; i < labels.size(); ++i) SLUICE_RETURN_IF_ERROR(EncodeLabel(labels, i));
  SLUICE_RETURN_IF_ERROR(EncodeAround(extraction.after_labels));
  label_tokens_.push_back(model_->tasks.separator);
  const int64_t needed = std::ssize(label_tokens_) + RowTemplate().specials();
  if (needed < model_->config.max_positions) return absl::OkStatus();
  return ReasonError(
      Reason::kParameter,
      absl::StrCat("parameter labels: the labels take ", needed,
                   " tokens of each row and leave none for a text; a row has at most ",
                   model_->config.max_positions,
                   " (the model's max_positions). Send fewer labels"));
}

absl::Status TextRows::EncodeWordsOf(int64_t index, std::string_view text, bool cuts) {
  const int64_t most = MostTokens(cuts);
  if (std::ssize(text) > MostBytes(cuts)) {
    return TooManyBytes(
        input_, index, text, cuts,
        cuts ? "shorten the text" : "set the parameter truncate to cut longer rows");
  }
  const ExtractionConfig& extraction = *model_->config.serving.extraction;
  std::vector<EncodedWord>& words = words_.emplace_back();
  const auto first = std::ssize(tokens_);
  SLUICE_RETURN_IF_ERROR(Keep(label_tokens_));
  const bool closes = NeedsFullStop(text, extraction.words);
  const std::string closed = closes ? absl::StrCat(AsView(text), ".") : "";
  if (closes) text = closed;
  const std::vector<TextWord> split = SplitWords(text, extraction.words);
  // The full stop is not a part of the text.
  const int32_t characters = split.empty() ? 0 : split.back().end - (closes ? 1 : 0);
  for (const TextWord& word : split) {
    const auto [begin, end] = word.bytes;
    const std::string encoded = EncodedText(text.substr(begin, end - begin), extraction.words);
    const auto tokens = model_->tokenizer->EncodeBare(encoded, most);
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    if (!tokens.ok()) {
      if (IsRefusalForMemory(tokens.status())) return tokens.status();
      return TextError(input_, index, absl::StrCat("is refused: ", tokens.status().message()));
    }
    if (tokens->empty()) continue;
    if (std::ssize(words) == extraction.max_words) {
      if (!cuts) {
        return TextError(input_, index,
                         absl::StrCat("has more than ", extraction.max_words,
                                      " words (the model's sluice.extraction.max_words); set the "
                                      "parameter truncate to cut longer texts"));
      }
      cut_word_tokens_ += std::ssize(*tokens);
      continue;
    }
    words.push_back({.characters = {word.begin, std::min(word.end, characters)},
                     .token = static_cast<int32_t>(std::ssize(tokens_) - first)});
    SLUICE_RETURN_IF_ERROR(Keep(*tokens));
  }
  kept_.front().push_back({first, std::ssize(tokens_) - first});
  return absl::OkStatus();
}

absl::Status TextRows::EncodeWords(const std::vector<std::string>& labels, bool cuts) {
  SLUICE_RETURN_IF_ERROR(EncodeLabels(labels));
  kept_.emplace_back();
  for (int64_t row = 0; row < rows(); ++row) {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    SLUICE_RETURN_IF_ERROR(EncodeWordsOf(row, texts_[0][row], cuts));
    if (LengthOf(row) == 0) return TextError(input_, row, "has 0 tokens; expected a word");
  }
  return absl::OkStatus();
}

TextRows::RowWords TextRows::WordsOf(int64_t row) const {
  RowWords words;
  const int32_t before = TokensBefore();
  for (const int32_t place : label_places_) words.positions.push_back(before + place);
  for (const EncodedWord& word : words_[row]) {
    if (word.token >= kept_[0][row].count) break;
    words.positions.push_back(before + word.token);
    words.characters.push_back(word.characters);
  }
  return words;
}

// A token may cross the boundary of two parts of a frame, so the parts are not encoded separately.
absl::Status TextRows::EncodeFramed(std::string_view instruction, Truncation truncation) {
  instruction_ = instruction;
  std::vector<Kept>& kept = kept_.emplace_back();
  for (int64_t row = 0; row < rows(); ++row) {
    const std::string text = frame_->Text({.instruction = instruction,
                                           .query = texts_[0][texts_[0].size() == 1 ? 0 : row],
                                           .document = texts_[1][row]});
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    SLUICE_ASSIGN_OR_RETURN(const Kept tokens,
                            EncodeText(Input::kTextPairInput, row, text, truncation));
    kept.push_back(tokens);
  }
  return absl::OkStatus();
}

int64_t TextRows::LengthOf(int64_t row) const {
  int64_t length = RowTemplate().specials();
  for (const std::vector<Kept>& side : kept_) length += side[row].count;
  return length;
}

absl::Status TextRows::CutFramed(Kept& row, Truncation truncation, int64_t most) {
  if (truncation == Truncation::kLeft) {
    row.begin += row.count - most;
    row.count = most;
    return absl::OkStatus();
  }
  if (!tail_) {
    SLUICE_ASSIGN_OR_RETURN(tail_, frame_->Tail(instruction_, *model_->tokenizer));
  }
  row.count = most;
  const int64_t kept = std::min(most, std::ssize(*tail_));
  std::copy(tail_->end() - kept, tail_->end(), tokens_.begin() + row.begin + most - kept);
  return absl::OkStatus();
}

int64_t TextRows::Filler(int64_t length) const {
  return rules_ == nullptr ? 0 : std::max<int64_t>(rules_->filled - length, 0);
}

int64_t TextRows::FillerOf(int64_t row) const { return Filler(LengthOf(row)); }

absl::Status TextRows::Cut(int64_t row, Truncation truncation, int64_t most) {
  if (framed()) return CutFramed(kept_[0][row], truncation, most);
  const int64_t left = most - RowTemplate().specials();
  if (left < 0) {
    return TextError(input_, row,
                     absl::StrCat("cannot be cut to ", most, " tokens: the tokenizer adds ",
                                  RowTemplate().specials(), " special tokens"));
  }
  const int64_t second = pairs() ? kept_[1][row].count : 0;
  const auto [first_kept, second_kept] = LongestFirst(kept_[0][row].count, second, left);
  const auto cut = [&](Kept& text, int64_t count) {
    if (truncation == Truncation::kLeft) text.begin += text.count - count;
    text.count = count;
  };
  cut(kept_[0][row], first_kept);
  if (pairs()) cut(kept_[1][row], second_kept);
  return absl::OkStatus();
}

absl::StatusOr<TextWindows> TextRows::Split(int32_t overlap, int64_t most, int64_t most_rows) {
  const int32_t before = TokensBefore();
  TextWindows windows{.overlap = overlap,
                      .before = before,
                      .behind = static_cast<int32_t>(std::ssize(RowTemplate().parts)) - before - 1};
  const int64_t room = most - RowTemplate().specials(), step = room - overlap;
  if (step <= 0) {
    return ReasonError(Reason::kInput,
                       absl::StrCat("parameter window_overlap is ", overlap, "; a window has ",
                                    room, " tokens of a text, and the overlap must be smaller"));
  }
  std::vector<Kept> all;
  for (const Kept& whole : kept_[0]) {
    const int64_t rest = std::max<int64_t>(whole.count - room, 0);
    windows.counts.push_back(static_cast<int32_t>(1 + (rest + step - 1) / step));
    if (std::ssize(all) + windows.counts.back() > most_rows) {
      return TextError(Input::kTextInput, std::ssize(windows.counts) - 1,
                       absl::StrCat("brings the request to more than ", most_rows,
                                    " windows; each window counts as a row (server.grpc.max_rows). "
                                    "Send fewer or shorter texts"));
    }
    for (int64_t i = 0; i < windows.counts.back(); ++i) {
      all.push_back({whole.begin + i * step, std::min(room, whole.count - i * step)});
    }
  }
  kept_[0] = std::move(all);
  return windows;
}

std::vector<ByteRange> TextRows::Ranges() const {
  std::vector<ByteRange> all;
  for (int64_t row = 0; row < rows(); ++row) {
    for (const TextTemplate::Element& part : RowTemplate().parts) {
      if (part.text == TextTemplate::kNoText) {
        all.push_back(ByteRange());
        continue;
      }
      const Kept& kept = kept_[0][row];
      for (int64_t i = kept.begin; i < kept.begin + kept.count; ++i) {
        const ByteRange range = ranges_[i];
        const bool of_prompt = range.begin < prompt_bytes_;
        all.push_back(of_prompt
                          ? ByteRange()
                          : ByteRange{range.begin - prompt_bytes_, range.end - prompt_bytes_});
      }
    }
    all.resize(all.size() + FillerOf(row));
  }
  return all;
}

absl::Status TextRows::CheckTypes(const std::vector<int32_t>& types) const {
  const int32_t most = *std::max_element(types.begin(), types.end());
  if (most < model_->config.token_types) return absl::OkStatus();
  return InputError(pairs() ? "text_pair_input" : "text_input",
                    absl::StrCat("is refused: the tokenizer's template has type ", most,
                                 "; the model has types 0 to ", model_->config.token_types - 1));
}

void TextRows::Append(TypedTokens* all) const {
  for (size_t row = 0; row < kept_.front().size(); ++row) {
    std::span<const int32_t> texts[2];
    for (size_t side = 0; side < kept_.size(); ++side) {
      const Kept& kept = kept_[side][row];
      texts[side] = std::span(tokens_).subspan(kept.begin, kept.count);
    }
    const auto before = std::ssize(all->ids);
    RowTemplate().Append({texts, kept_.size()}, all);
    const int64_t filler = Filler(std::ssize(all->ids) - before);
    if (filler > 0) all->ids.resize(all->ids.size() + filler, rules_->filler);
    all->types.resize(all->ids.size());
  }
}

}  // namespace sluice
