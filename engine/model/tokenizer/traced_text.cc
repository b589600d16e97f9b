#include "engine/model/tokenizer/traced_text.h"

#include <algorithm>
#include <utility>

#include "base/interruption.h"
#include "base/status_macros.h"

namespace sluice::tokenize {
namespace {

constexpr int64_t kBytesOfSource = sizeof(Source);
constexpr size_t kPartBytes = 512;

struct Decomposed {
  ChangedCharacter character;
  int combining_class;
};

// The memory of normalising a byte: at most six characters come from it, in lists that grow.
constexpr int64_t kBytesOfPart =
    6 * 3 * (sizeof(Decomposed) + sizeof(ChangedCharacter) + sizeof(int));

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

std::vector<ChangedCharacter> Decompose(std::string_view text, bool compatible,
                                        std::vector<int>* classes) {
  const NormalForm form = compatible ? NormalForm::kKD : NormalForm::kD;
  std::vector<Decomposed> all;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    NextCodePoint(text, &at);
    TextBuilder builder;
    Normalize(text.substr(begin, at - begin), form, &builder);
    const std::string_view parts = builder.text();
    for (size_t in_parts = 0; in_parts < parts.size();) {
      const int change = in_parts == 0 ? 0 : 1;
      const char32_t point = NextCodePoint(parts, &in_parts);
      all.push_back({{point, change}, CombiningClass(point)});
    }
  }
  SortMarks(&all);
  std::vector<ChangedCharacter> characters;
  for (const Decomposed& each : all) {
    characters.push_back(each.character);
    classes->push_back(each.combining_class);
  }
  return characters;
}

// The canonical composition of the Unicode Standard, section 3.11.
std::vector<ChangedCharacter> Compose(const std::vector<ChangedCharacter>& characters,
                                      const std::vector<int>& classes) {
  std::vector<ChangedCharacter> made;
  ChangedCharacter* starter = nullptr;
  int last_class = -1;  // of the characters after `starter`
  made.reserve(characters.size());
  for (size_t i = 0; i < characters.size(); ++i) {
    if (starter != nullptr && last_class < classes[i]) {
      if (const auto composed = ComposedPair(starter->point, characters[i].point)) {
        *starter = {*composed, starter->change + characters[i].change - 1};
        continue;
      }
    }
    made.push_back(characters[i]);
    last_class = classes[i];
    if (classes[i] != 0) continue;
    starter = &made.back();
    last_class = -1;
  }
  return made;
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

}  // namespace

absl::StatusOr<TracedText> OriginalText(std::string_view text, bool traced, size_t most) {
  TextBuilder copy(text.size(), most);
  copy.Append(text);
  SLUICE_ASSIGN_OR_RETURN(OwnedText owned, std::move(copy).Finish());
  TracedText made{.text = std::move(owned.text),
                  .traced = traced,
                  .most = most,
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
  return TracedText{.text = std::move(owned.text),
                    .traced = before_.traced,
                    .sources = std::move(sources_),
                    .most = before_.most,
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
  if (!before.traced) {
    Rewriting made(before);
    Normalize(before.text, form, &made.text());
    return std::move(made).Finish();
  }
  const bool compatible = form == NormalForm::kKC || form == NormalForm::kKD;
  const bool composes = form == NormalForm::kC || form == NormalForm::kKC;
  Changes changes(before);
  for (size_t begin = 0; begin < before.text.size();) {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    const size_t end = EndOfPart(before.text, begin, form);
    WorkMemory memory;
    SLUICE_RETURN_IF_ERROR(memory.Hold(static_cast<int64_t>(end - begin) * kBytesOfPart));
    const std::string_view part = std::string_view(before.text).substr(begin, end - begin);
    begin = end;
    TextBuilder normal(part.size());
    Normalize(part, form, &normal);
    if (normal.text() == part) {
      for (size_t at = 0; at < part.size();) changes.Add({NextCodePoint(part, &at), 0});
      continue;
    }
    std::vector<int> classes;
    const std::vector<ChangedCharacter> characters = Decompose(part, compatible, &classes);
    for (const ChangedCharacter& character : composes ? Compose(characters, classes) : characters) {
      changes.Add(character);
    }
  }
  return std::move(changes).Finish();
}

}  // namespace sluice::tokenize
