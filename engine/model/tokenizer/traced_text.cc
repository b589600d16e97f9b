#include "engine/model/tokenizer/traced_text.h"

#include <algorithm>
#include <utility>

#include "base/interruption.h"
#include "base/status_macros.h"

namespace sluice::tokenize {
namespace {

constexpr int64_t kBytesOfSource = sizeof(Source);
constexpr size_t kPartBytes = 512;
// ICU moves marks one by one past the marks before them, so its time grows with the square of a
// run of unsorted marks. The marks of a longer part are sorted before ICU gets it.
constexpr size_t kLongPartBytes = 2 * kPartBytes;
// The most characters that one character decomposes to: U+FDFA.
constexpr size_t kMostOfCharacter = 18;

struct Decomposed {
  ChangedCharacter character;
  int combining_class;
};

// Sorts the marks after each character by their combining class.
void SortMarks(std::vector<Decomposed>* characters) {
  for (auto at = characters->begin(); at != characters->end();) {
    const auto ends = [](const Decomposed& each) { return each.combining_class == 0; };
    const auto end = std::find_if(at, characters->end(), ends);
    std::stable_sort(at, end, [](const Decomposed& one, const Decomposed& other) {
      return one.combining_class < other.combining_class;
    });
    at = end == characters->end() ? end : end + 1;
  }
}

// Decomposes each character and sorts the marks. `memory` is of the result.
absl::StatusOr<std::vector<Decomposed>> Decompose(std::string_view text, NormalForm form,
                                                  WorkMemory* memory) {
  const bool compatible = form == NormalForm::kKC || form == NormalForm::kKD;
  std::vector<Decomposed> all;
  InterruptionCounter counter;
  for (size_t at = 0; at < text.size();) {
    SLUICE_RETURN_IF_ERROR(counter.Check());
    if (all.size() + kMostOfCharacter > all.capacity()) {
      const size_t room = std::max(2 * all.capacity(), CountCodePoints(text) + kMostOfCharacter);
      // The old and the new list exist at the same time. Sorting and composing need a second list.
      SLUICE_RETURN_IF_ERROR(memory->Hold(static_cast<int64_t>(2 * room * sizeof(Decomposed))));
      all.reserve(room);
    }
    const size_t begin = at;
    NextCodePoint(text, &at);
    TextBuilder builder;
    Normalize(text.substr(begin, at - begin), compatible ? NormalForm::kKD : NormalForm::kD,
              &builder);
    const std::string_view parts = builder.text();
    for (size_t in_parts = 0; in_parts < parts.size();) {
      const int change = in_parts == 0 ? 0 : 1;
      const char32_t point = NextCodePoint(parts, &in_parts);
      all.push_back({{point, change}, CombiningClass(point)});
    }
  }
  SortMarks(&all);
  return all;
}

// The canonical composition of the Unicode Standard, section 3.11.
absl::StatusOr<std::vector<ChangedCharacter>> Compose(const std::vector<Decomposed>& characters) {
  std::vector<ChangedCharacter> made;
  ChangedCharacter* starter = nullptr;
  int last_class = -1;  // of the characters after `starter`
  InterruptionCounter counter;
  made.reserve(characters.size());
  for (const auto& [character, combining_class] : characters) {
    SLUICE_RETURN_IF_ERROR(counter.Check());
    if (starter != nullptr && last_class < combining_class) {
      if (const auto composed = ComposedPair(starter->point, character.point)) {
        *starter = {*composed, starter->change + character.change - 1};
        continue;
      }
    }
    made.push_back(character);
    last_class = combining_class;
    if (combining_class != 0) continue;
    starter = &made.back();
    last_class = -1;
  }
  return made;
}

// Appends the normal form of a part.
absl::Status NormalizePart(std::string_view part, NormalForm form, TextBuilder* normal) {
  if (part.size() <= kLongPartBytes) {
    Normalize(part, form, normal);
    return absl::OkStatus();
  }
  WorkMemory memory;
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Decomposed> characters, Decompose(part, form, &memory));
  TextBuilder sorted(part.size());
  for (const Decomposed& each : characters) sorted.Append(each.character.point);
  SLUICE_ASSIGN_OR_RETURN(const OwnedText owned, std::move(sorted).Finish());
  Normalize(owned.text, form, normal);
  return absl::OkStatus();
}

// Adds the changes that normalise a part.
absl::Status ChangePart(std::string_view part, NormalForm form, Changes* changes) {
  TextBuilder normal(part.size());
  SLUICE_RETURN_IF_ERROR(NormalizePart(part, form, &normal));
  if (normal.text() == part) {
    for (size_t at = 0; at < part.size();) changes->Add({NextCodePoint(part, &at), 0});
    return absl::OkStatus();
  }
  WorkMemory memory;
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Decomposed> characters, Decompose(part, form, &memory));
  if (form == NormalForm::kD || form == NormalForm::kKD) {
    for (const Decomposed& each : characters) changes->Add(each.character);
    return absl::OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<ChangedCharacter> composed, Compose(characters));
  for (const ChangedCharacter& character : composed) changes->Add(character);
  return absl::OkStatus();
}

// Returns the end of the part that begins at `begin`: after kPartBytes, where the text may be
// divided.
size_t EndOfPart(std::string_view text, size_t begin, NormalForm form) {
  for (size_t at = std::min(begin + kPartBytes, text.size()); at < text.size();) {
    const size_t character = at;
    // NextCodePoint returns U+FFFD inside of a character, and a text may be divided before that.
    const bool inside = (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
    const char32_t point = NextCodePoint(text, &at);
    if (!inside && BeginsPart(point, form)) return character;
  }
  return text.size();
}

// Calls `visit` for each part of the text, in order, and ends with its first error.
template <typename Visit>
absl::Status ForEachPart(std::string_view text, NormalForm form, const Visit& visit) {
  for (size_t begin = 0; begin < text.size();) {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    const size_t end = EndOfPart(text, begin, form);
    SLUICE_RETURN_IF_ERROR(visit(text.substr(begin, end - begin)));
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TracedText> OriginalText(std::string_view text, bool traced, size_t most) {
  TextBuilder copy(text.size(), std::min(most, kMaxTextBytes));
  copy.Append(text);
  SLUICE_ASSIGN_OR_RETURN(OwnedText owned, std::move(copy).Finish());
  TracedText made{.text = std::move(owned.text),
                  .traced = traced,
                  .most = std::min(most, kMaxGrowth * text.size() + kMaxAddedBytes),
                  .memory = std::move(owned.memory)};
  if (!traced) return made;
  SLUICE_RETURN_IF_ERROR(made.of_sources.Hold(std::ssize(text) * kBytesOfSource));
  made.sources.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto begin = static_cast<uint32_t>(at);
    NextCodePoint(text, &at);
    made.sources.resize(at, {begin, static_cast<uint32_t>(at)});
  }
  return made;
}

void Rewriting::Keep(size_t begin, size_t end) {
  text_.Append(std::string_view(before_.text).substr(begin, end - begin));
  NoteFirst(begin);
  const bool appended = text_.text().size() == sources_.size() + end - begin;
  if (!before_.traced || !appended || !HasRoomForSources()) return;
  sources_.insert(sources_.end(), before_.sources.begin() + static_cast<int64_t>(begin),
                  before_.sources.begin() + static_cast<int64_t>(end));
}

bool Rewriting::HasRoomForSources() {
  const size_t size = text_.text().size();
  if (size > sources_.capacity() && status_.ok()) {
    const size_t room = std::max({size, 2 * sources_.capacity(), before_.sources.size()});
    // The old and the new list exist at the same time.
    status_ = memory_.Hold(static_cast<int64_t>(room + sources_.capacity()) * kBytesOfSource);
    if (status_.ok()) sources_.reserve(room);
  }
  return status_.ok();
}

absl::StatusOr<TracedText> Rewriting::Finish() && {
  SLUICE_RETURN_IF_ERROR(status_);
  SLUICE_ASSIGN_OR_RETURN(OwnedText owned, std::move(text_).Finish());
  const size_t left = before_.most - std::min(before_.most, owned.text.size());
  return TracedText{.text = std::move(owned.text),
                    .traced = before_.traced,
                    .begins_original = begins_original_,
                    .sources = std::move(sources_),
                    .most = left,
                    .memory = std::move(owned.memory),
                    .of_sources = std::move(memory_)};
}

void Changes::Flush() {
  if (!last_) return;
  const size_t first = last_->change > 0 ? used_ : at_;
  for (int used = last_->change; used <= 0 && at_ < before_.text.size(); ++used) {
    used_ = at_;
    NextCodePoint(before_.text, &at_);
  }
  made_.text().Append(last_->point);
  made_.From(first < before_.text.size() ? first : Rewriting::kNowhere);
}

absl::StatusOr<TracedText> NormalizeTraced(const TracedText& before, NormalForm form) {
  if (before.traced) {
    Changes changes(before);
    SLUICE_RETURN_IF_ERROR(ForEachPart(before.text, form, [&](std::string_view part) {
      return ChangePart(part, form, &changes);
    }));
    return std::move(changes).Finish();
  }
  Rewriting made(before);
  SLUICE_RETURN_IF_ERROR(ForEachPart(before.text, form, [&](std::string_view part) {
    return NormalizePart(part, form, &made.text());
  }));
  return std::move(made).Finish();
}

}  // namespace sluice::tokenize
