#include "engine/model/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/enum_names.h"
#include "base/status_macros.h"
#include "engine/model/tokenizer/byte_level.h"
#include "engine/model/tokenizer/steps.h"
#include "engine/model/tokenizer/traced_text.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {
namespace {

using Visit = PreTokenizer::Visit;
using SplitTransform = std::function<absl::Status(PreToken piece, Visit visit)>;

// The words of GPT-2, each with the space before it.
constexpr char kByteLevelWords[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// The library has an engine for this one that counts joiners as parts of words.
constexpr char kWords[] = R"([\w\u200C\u200D]+|[^\w\u200C\u200D\s]+)";

struct Cut {
  std::shared_ptr<const Pattern> pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;

  absl::Status operator()(const PreToken& piece, Visit visit) const {
    size_t source = piece.begin, before = 0;  // where in both the part begins
    return Split(*pattern, piece.text, behavior, invert, [&](std::string_view part) {
      const size_t at = part.data() - piece.text.data();
      source += SourceBytes(piece, before, at);
      before = at;
      WorkMemory memory;
      SLUICE_RETURN_IF_ERROR(memory.Hold(std::ssize(part)));
      return visit({.text = std::string(part),
                    .first = piece.first && at == 0,
                    .begin = source,
                    .inserted = at == 0 ? piece.inserted : 0,
                    .located = piece.located,
                    .mark = piece.mark,
                    .byte_level = piece.byte_level});
    });
  }
};

std::shared_ptr<const Pattern> Builtin(const char* expression) {
  auto pattern = MakeRegexPattern(expression);
  return pattern.ok() ? *std::move(pattern) : nullptr;
}

SplitBehavior ReadBehavior(ObjectReader& fields) {
  if (!fields.Has("behavior")) return SplitBehavior::kIsolated;
  return fields.Enum<SplitBehavior>("behavior");
}

SplitTransform MakeByteLevel(ObjectReader& fields) {
  const bool prefix = fields.Boolean("add_prefix_space", true);
  const bool words = fields.Boolean("use_regex", true);
  const Cut cut{Builtin(kByteLevelWords)};
  return [=](PreToken whole, Visit visit) -> absl::Status {
    WorkMemory memory;  // of the text with the space, while the old one exists
    SLUICE_RETURN_IF_ERROR(memory.Hold(2 * std::ssize(whole.text)));
    whole.located = whole.located && !whole.byte_level;  // Bytes of bytes are not followed.
    if (prefix && !whole.text.starts_with(' ')) {
      whole.text.insert(0, 1, ' ');
      whole.inserted = 1;
    }
    const auto visit_bytes = [&](PreToken made) -> absl::Status {
      WorkMemory of_characters;
      SLUICE_RETURN_IF_ERROR(of_characters.Hold(2 * std::ssize(made.text)));
      made.text = BytesToCharacters(made.text);
      made.byte_level = true;
      // The space that was put before the text is a character of two bytes now.
      if (made.inserted > 0) made.inserted = BytesToCharacters(" ").size();
      return visit(std::move(made));
    };
    return words ? cut(whole, visit_bytes) : visit_bytes(std::move(whole));
  };
}

enum class Prepend { kAlways, kNever, kFirst };
constexpr auto EnumNamesOf(Prepend) {
  using enum Prepend;
  return EnumNameTable<Prepend>({{kAlways, "always"}, {kNever, "never"}, {kFirst, "first"}});
}

// Old files have no prepend_scheme. The library refuses a scheme that contradicts add_prefix_space
// since version 0.16; up to then false had priority.
Prepend ReadPrepend(ObjectReader& fields) {
  if (!fields.Boolean("add_prefix_space", true)) return Prepend::kNever;
  return fields.Enum<Prepend>("prepend_scheme");
}

SplitTransform MakeMetaspace(ObjectReader& fields) {
  const std::string mark = fields.String("replacement", 4, "\xE2\x96\x81");
  const Prepend prepend = ReadPrepend(fields);
  const bool split = fields.Boolean("split", true);
  if (CountCodePoints(mark) != 1) fields.Fail("replacement", "is not one character");
  const std::shared_ptr<const Pattern> space = MakeLiteralPattern(" ");
  const Cut cut{MakeLiteralPattern(mark), SplitBehavior::kMergedWithNext};
  return [=](PreToken piece, Visit visit) -> absl::Status {
    const bool wanted = prepend == Prepend::kAlways || (prepend == Prepend::kFirst && piece.first);
    const bool inserted = wanted && !piece.text.starts_with(mark) && !piece.text.starts_with(' ');
    TextBuilder text(piece.text.size());
    if (inserted) text.Append(mark);
    SLUICE_RETURN_IF_ERROR(Replace(*space, piece.text, mark, &text));
    SLUICE_ASSIGN_OR_RETURN(OwnedText replaced, std::move(text).Finish());
    piece.located = piece.located && piece.text.find(mark) == piece.text.npos;
    piece.text = std::move(replaced.text);
    piece.mark = mark;
    if (inserted) piece.inserted = mark.size();
    return split ? cut(piece, visit) : visit(std::move(piece));
  };
}

SplitTransform MakeSplit(ObjectReader& fields) {
  Cut cut{ReadPattern("pattern", fields)};
  cut.behavior = ReadBehavior(fields);
  cut.invert = fields.Boolean("invert", false);
  return cut;
}

SplitTransform MakeDelimiter(ObjectReader& fields) {
  const std::string delimiter = fields.String("delimiter", 4);
  if (CountCodePoints(delimiter) != 1) {
    fields.Fail("delimiter", "is not one character");
    return nullptr;
  }
  return Cut{MakeLiteralPattern(delimiter), SplitBehavior::kRemoved};
}

SplitTransform MakeFixedLength(ObjectReader& fields) {
  constexpr int64_t kUsual = 5, kMost = 1 << 20;
  return Cut{MakeLengthPattern(static_cast<size_t>(fields.Integer("length", 1, kMost, kUsual)))};
}

SplitTransform MakeDigits(ObjectReader& fields) {
  const bool individual = fields.Boolean("individual_digits", false);
  return Cut{MakeClassPattern(IsNumeric),
             individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous};
}

SplitTransform MakeBert() {
  const Cut words{MakeClassPattern(IsSpace), SplitBehavior::kRemoved};
  const Cut marks{MakeClassPattern(IsPunctuation)};
  return [=](const PreToken& piece, Visit visit) {
    return words(piece, [&](const PreToken& part) { return marks(part, visit); });
  };
}

void MakeSplitTransforms(const std::string& type, ObjectReader& fields,
                         std::vector<SplitTransform>* transforms) {
  if (type == "ByteLevel") {
    transforms->push_back(MakeByteLevel(fields));
  } else if (type == "Metaspace") {
    transforms->push_back(MakeMetaspace(fields));
  } else if (type == "Whitespace") {
    transforms->push_back(Cut{Builtin(kWords), SplitBehavior::kRemoved, /*invert=*/true});
  } else if (type == "WhitespaceSplit") {
    transforms->push_back(Cut{MakeClassPattern(IsSpace), SplitBehavior::kRemoved});
  } else if (type == "BertPreTokenizer") {
    transforms->push_back(MakeBert());
  } else if (type == "Split") {
    transforms->push_back(MakeSplit(fields));
  } else if (type == "Punctuation") {
    transforms->push_back(Cut{MakeClassPattern(IsPunctuation), ReadBehavior(fields)});
  } else if (type == "CharDelimiterSplit") {
    transforms->push_back(MakeDelimiter(fields));
  } else if (type == "UnicodeScripts") {
    transforms->push_back(Cut{MakeScriptPattern(), SplitBehavior::kRemoved, /*invert=*/true});
  } else if (type == "FixedLength") {
    transforms->push_back(MakeFixedLength(fields));
  } else if (type == "Digits") {
    transforms->push_back(MakeDigits(fields));
  } else {
    fields.Fail("type", absl::StrCat("\"", absl::CEscape(type), "\" is not supported"));
  }
}

}  // namespace

size_t SourceBytes(const PreToken& piece, size_t from, size_t to) {
  from = std::max(from, piece.inserted);
  if (to <= from) return 0;
  const std::string_view text = std::string_view(piece.text).substr(from, to - from);
  if (piece.byte_level) return CountCodePoints(text);
  if (piece.mark.empty()) return text.size();
  size_t marks = 0;
  for (size_t at = text.find(piece.mark); at != text.npos; at = text.find(piece.mark, at + 1)) {
    ++marks;
  }
  return text.size() - marks * (piece.mark.size() - 1);
}

absl::StatusOr<PreTokenizer> PreTokenizer::Parse(const nlohmann::json* object) {
  absl::Status status;
  PreTokenizer pre_tokenizer;
  VisitMembers(
      object, "pre_tokenizer", "pretokenizers",
      [&](const std::string& type, ObjectReader& fields) {
        MakeSplitTransforms(type, fields, &pre_tokenizer.transforms_);
      },
      &status);
  SLUICE_RETURN_IF_ERROR(status);
  return pre_tokenizer;
}

absl::Status PreTokenizer::Run(size_t step, PreToken piece, size_t* left, Visit visit) const {
  const size_t bytes = piece.text.size() + 1;  // An empty piece costs time too.
  if (bytes > *left) {
    return absl::OutOfRangeError(absl::StrCat(
        "the pre_tokenizer makes more pieces of the text than the limit allows: all steps of the "
        "tokenizer together may make ",
        kMaxGrowth, " bytes of each byte, and ", kMaxAddedBytes, " more"));
  }
  *left -= bytes;
  if (step == transforms_.size()) return visit(std::move(piece));
  return transforms_[step](std::move(piece), [this, step, left, visit](PreToken part) {
    return Run(step + 1, std::move(part), left, visit);
  });
}

}  // namespace sluice::tokenize
