// A text that is changed step by step, and the bytes of the original text that its bytes come from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/work_memory.h"
#include "engine/model/tokenizer/text_builder.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {

// A range of bytes of the original text; empty for a byte that comes from none of them.
struct Source {
  uint32_t begin = 0;
  uint32_t end = 0;
};

struct TracedText {
  std::string text;
  bool traced = false;
  // Whether the first byte comes from the first byte of the original text.
  bool begins_original = true;
  std::vector<Source> sources{};  // of each byte of `text`, if it is traced
  size_t most = 0;                // the bytes that all later steps together may make
  WorkMemory memory{};            // of `text`
  WorkMemory of_sources{};
};

// All steps of a tokenizer together, those of the pre_tokenizer included, may make this many bytes
// of each byte of a text, and some more for what they add to a short text. Otherwise a sequence of
// steps that add something at each place would take time that is exponential in its length. Steps
// of published tokenizers make the text about ten times, with at most 22 bytes for one: NFKC makes
// 33 bytes of the 3 of U+FDFA, and ByteLevel doubles them.
inline constexpr size_t kMaxGrowth = 64;
inline constexpr size_t kMaxAddedBytes = 2048;

// Returns `text` as the original text. If it is traced, each byte comes from its whole character.
// It and what later steps make may have `most` bytes, if that is less than the limits above and
// kMaxTextBytes for each text. Returns OutOfRange for a text of more bytes, and the refusal of the
// account of the work's memory.
absl::StatusOr<TracedText> OriginalText(std::string_view text, bool traced,
                                        size_t most = static_cast<size_t>(-1));

// Makes a text from another one, `before`, which outlives it.
class Rewriting {
 public:
  static constexpr size_t kNowhere = static_cast<size_t>(-1);

  explicit Rewriting(const TracedText& before)
      : before_(before),
        text_(before.text.size(), std::min(before.most, kMaxTextBytes)),
        begins_original_(before.begins_original) {}

  // The text so far. Bytes may be appended; then From has to be called.
  TextBuilder& text() { return text_; }
  // The bytes appended since the last call come from the byte `at` of the text before, or from
  // nowhere.
  void From(size_t at) {
    NoteFirst(at == kNowhere ? 0 : at);
    if (before_.traced) AddSources(at == kNowhere ? Source() : before_.sources[at]);
  }
  // Appends the bytes [begin, end) of the text before.
  void Keep(size_t begin, size_t end);
  // Returns the errors of TextBuilder.
  absl::StatusOr<TracedText> Finish() &&;

 private:
  // The first bytes of the text come from the byte `at` of the text before.
  void NoteFirst(size_t at) {
    if (has_first_ || text_.text().empty()) return;
    has_first_ = true;
    begins_original_ = begins_original_ && at == 0;
  }
  bool HasRoomForSources();
  void AddSources(Source source) {
    if (HasRoomForSources()) sources_.resize(text_.text().size(), source);
  }

  const TracedText& before_;
  TextBuilder text_;
  bool has_first_ = false;
  bool begins_original_;
  std::vector<Source> sources_;
  WorkMemory memory_;  // of sources_
  absl::Status status_;
};

// Maps each character by itself. `map` appends what becomes of a character to a text.
template <typename Map>
absl::StatusOr<TracedText> MapCharacters(const TracedText& before, const Map& map) {
  Rewriting made(before);
  for (size_t at = 0; at < before.text.size();) {
    const size_t begin = at;
    map(NextCodePoint(before.text, &at), &made.text());
    made.From(begin);
  }
  return std::move(made).Finish();
}

// A character of a changed text. `change` relates it to the characters before, as in Hugging Face's
// library: above 0, it was inserted after the last one used; at 0, it replaces the next one; below
// 0, it also replaces that many characters after it.
struct ChangedCharacter {
  char32_t point;
  int change;
};

// Makes a text from the characters that a change of `before`, which outlives it, makes.
class Changes {
 public:
  explicit Changes(const TracedText& before) : before_(before), made_(before) {}

  void Add(const ChangedCharacter& character) {
    Flush();
    last_ = character;
  }
  // Lets the last character, if there is one, replace `more` further characters.
  void WidenLast(int more) {
    if (last_) last_->change -= more;
  }
  absl::StatusOr<TracedText> Finish() && {
    Flush();
    return std::move(made_).Finish();
  }

 private:
  void Flush();

  const TracedText& before_;
  Rewriting made_;
  std::optional<ChangedCharacter> last_;
  size_t at_ = 0, used_ = Rewriting::kNowhere;  // the next and the last character before
};

// Normalises a text as Normalize does, in linear time.
absl::StatusOr<TracedText> NormalizeTraced(const TracedText& before, NormalForm form);

}  // namespace sluice::tokenize
