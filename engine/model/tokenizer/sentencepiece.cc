#include "engine/model/tokenizer/sentencepiece.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/interruption.h"
#include "base/status_macros.h"
#include "engine/model/tokenizer/sentencepiece_file.h"
#include "engine/model/tokenizer/subword_model.h"
#include "engine/model/tokenizer/trie.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {
namespace {

using Type = SentencePieceFile::Type;

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581 stands for a space

// Normalizes a text as SentencePiece does before segmentation.
class SpaceNormalizer {
 public:
  explicit SpaceNormalizer(const SentencePieceFile& file)
      : charsmap_(file.charsmap),
        dummy_(file.add_dummy_prefix),
        suffix_(file.space_is_suffix),
        trims_(file.remove_extra_spaces),
        space_(file.escape_spaces ? kSpace : " ") {
    for (int32_t id = 0; id < file.vocabulary.end(); ++id) {
      if (file.TypeOf(id) == Type::kUserDefined) verbatim_.Add(file.vocabulary.TextOf(id), id);
    }
  }

  absl::StatusOr<OwnedText> Apply(std::string_view text) const {
    InterruptionCounter counter;
    size_t steps = 0;  // of the last search
    while (trims_ && !text.empty()) {
      const Charsmap::Match first = First(text, &steps);
      SLUICE_RETURN_IF_ERROR(counter.Check(steps));
      if (first.replacement != " ") break;
      text.remove_prefix(first.bytes);
    }
    TextBuilder out(text.size());
    if (text.empty()) return std::move(out).Finish();
    if (dummy_ && !suffix_) out.Append(space_);
    bool after_space = trims_;
    while (!text.empty()) {
      const Charsmap::Match first = First(text, &steps);
      SLUICE_RETURN_IF_ERROR(counter.Check(steps));
      after_space = Append(first.replacement, after_space, &out) && trims_;
      text.remove_prefix(first.bytes);
    }
    while (trims_ && out.text().ends_with(space_)) out.RemoveEnd(space_.size());
    if (dummy_ && suffix_) out.Append(space_);
    return std::move(out).Finish();
  }

 private:
  // Returns the replacement of the beginning of `text`, and the steps of its search.
  Charsmap::Match First(std::string_view text, size_t* steps) const {
    const Trie::Match verbatim = verbatim_.Longest(text);
    *steps = verbatim.steps;
    if (verbatim.bytes > 0) return {verbatim.bytes, text.substr(0, verbatim.bytes)};
    if (charsmap_) {
      if (const auto match = charsmap_->Longest(text)) return *match;
    }
    size_t at = 0;
    NextCodePoint(text, &at);
    return {at, text.substr(0, at)};
  }

  // Appends `fresh` and returns whether `out` then ends with a space.
  bool Append(std::string_view fresh, bool after_space, TextBuilder* out) const {
    while (after_space && fresh.starts_with(' ')) fresh.remove_prefix(1);
    if (fresh.empty()) return after_space;
    for (const char byte : fresh) {
      if (byte == ' ') {
        out->Append(space_);
      } else {
        out->Append(std::string_view(&byte, 1));
      }
    }
    return fresh.ends_with(' ');
  }

  std::optional<Charsmap> charsmap_;
  Trie verbatim_;
  bool dummy_, suffix_, trims_;
  std::string_view space_;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(SentencePieceFile file, std::unique_ptr<const SubwordModel> model,
                         TextTemplates templates)
      : Tokenizer(std::move(templates)),
        file_(std::move(file)),
        normalizer_(file_),
        model_(std::move(model)) {}

  absl::StatusOr<std::vector<int32_t>> EncodeBare(std::string_view text,
                                                  int64_t /*most*/) const override {
    std::vector<int32_t> ids;
    TextBuilder copy(text.size());
    AppendValidUtf8(text, &copy);
    SLUICE_ASSIGN_OR_RETURN(const OwnedText valid, std::move(copy).Finish());
    SLUICE_ASSIGN_OR_RETURN(const OwnedText normal, normalizer_.Apply(valid.text));
    if (!normal.text.empty()) {
      SLUICE_RETURN_IF_ERROR(model_->Encode(normal.text, &ids, nullptr));
    }
    return ids;
  }

  std::string Decode(std::span<const int32_t> ids) const override {
    return Join(ids, /*keep_bytes=*/false);
  }
  std::string DecodeBytes(std::span<const int32_t> ids) const override {
    return Join(ids, /*keep_bytes=*/true);
  }
  bool TextIsUtf8() const override { return true; }
  int64_t longest_token_bytes() const override { return LongestTokenBytes(*model_); }
  int64_t longest_decoded_bytes() const override {
    return std::max(longest_token_bytes(), std::ssize(file_.unknown_text));
  }

 private:
  std::string Join(std::span<const int32_t> ids, bool keep_bytes) const {
    std::string text;
    std::string bytes;
    bool begins = true;  // spaces here were added by the encoding
    bool space_dropped = false;
    for (const int32_t id : ids) {
      if (!model_->vocabulary().Has(id)) continue;
      const std::string& piece = model_->vocabulary().TextOf(id);
      if (file_.TypeOf(id) == Type::kByte) {
        bytes.push_back(static_cast<char>(ByteOf(piece)));
        continue;
      }
      AppendBytes(keep_bytes, &bytes, &text);
      if (space_dropped || !text.empty()) begins = false;
      text += TextOf(id, piece, begins, &space_dropped);
    }
    AppendBytes(keep_bytes, &bytes, &text);
    return text;
  }

  std::string TextOf(int32_t id, std::string_view piece, bool begins, bool* space_dropped) const {
    *space_dropped = false;
    if (file_.TypeOf(id) == Type::kControl) return "";
    if (file_.TypeOf(id) == Type::kUnknown) return file_.unknown_text;
    if (begins && (file_.add_dummy_prefix || file_.remove_extra_spaces) &&
        piece.starts_with(kSpace)) {
      piece.remove_prefix(kSpace.size());
      *space_dropped = !file_.remove_extra_spaces;
    }
    return absl::StrReplaceAll(absl::string_view(piece.data(), piece.size()),
                               {{absl::string_view(kSpace.data(), kSpace.size()), " "}});
  }

  // Appends consecutive bytes to `text` as characters, and each other byte as U+FFFD unless
  // `keep_bytes`.
  static void AppendBytes(bool keep_bytes, std::string* bytes, std::string* text) {
    for (size_t at = 0; at < bytes->size();) {
      size_t next = at;
      const std::string_view rest = std::string_view(*bytes).substr(at);
      const bool valid = NextCodePoint(*bytes, &next) != 0xFFFD || rest.starts_with(kReplacement);
      if (!valid) next = at + 1;
      *text += valid || keep_bytes ? rest.substr(0, next - at) : kReplacement;
      at = next;
    }
    bytes->clear();
  }

  SentencePieceFile file_;
  SpaceNormalizer normalizer_;
  std::unique_ptr<const SubwordModel> model_;
};

std::vector<bool> OfTypes(const SentencePieceFile& file, std::initializer_list<Type> types) {
  std::vector<bool> flags;
  flags.reserve(file.types.size());
  for (const Type type : file.types) {
    flags.push_back(std::find(types.begin(), types.end(), type) != types.end());
  }
  return flags;
}

std::unique_ptr<const SubwordModel> MakeBpe(const SentencePieceFile& file) {
  ScoredPieces pieces;
  pieces.vocabulary = file.vocabulary;
  pieces.scores = file.scores;
  pieces.merged = OfTypes(file, {Type::kNormal, Type::kUserDefined});
  for (int32_t id = 0; id < file.vocabulary.end(); ++id) {
    if (file.TypeOf(id) == Type::kUserDefined) pieces.unsplit.push_back(id);
  }
  pieces.unknown = file.unknown;
  pieces.byte_fallback = file.byte_fallback;
  return MakeScoredBpe(std::move(pieces));
}

// A user-defined piece scores 0.1 for each byte after the first, as in SentencePiece 0.2.3. It is
// preferred to pieces of other types. Up to version 0.2.1 it scored about -0.1.
std::unique_ptr<const SubwordModel> MakeUnigramModel(const SentencePieceFile& file) {
  UnigramPieces pieces;
  pieces.vocabulary = file.vocabulary;
  pieces.scores = file.scores;
  pieces.segmented = OfTypes(file, {Type::kNormal, Type::kUserDefined});
  double lowest = 0;
  bool any = false;
  for (size_t id = 0; id < file.scores.size(); ++id) {
    if (file.types[id] != Type::kNormal) continue;
    lowest = any ? std::min(lowest, file.scores[id]) : file.scores[id];
    any = true;
  }
  for (int32_t id = 0; id < file.vocabulary.end(); ++id) {
    if (file.TypeOf(id) != Type::kUserDefined) continue;
    const auto bytes = static_cast<double>(file.vocabulary.TextOf(id).size());
    pieces.scores[id] = 0.1 * (bytes - 1);
  }
  pieces.unknown_score = static_cast<float>(lowest - kUnknownPenalty);
  pieces.unknown = file.unknown;
  pieces.byte_fallback = file.byte_fallback;
  pieces.single_precision = true;
  return MakeUnigram(std::move(pieces));
}

TextTemplates TemplatesOf(const SentencePieceFile& file, const SpecialTokens& specials) {
  const auto is = [&](const char* name) {
    return specials.tokenizer_class.find(name) != std::string::npos;
  };
  TextTemplates templates;
  SetBos(file.vocabulary.IdOf(specials.bos.empty() ? file.bos : specials.bos),
         specials.add_bos.value_or(is("Llama") || is("Gemma")), &templates);
  SetEos(file.vocabulary.IdOf(specials.eos.empty() ? file.eos : specials.eos),
         specials.add_eos.value_or(is("T5")), &templates);
  return templates;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> ParseSentencePiece(std::string_view bytes,
                                                                    const SpecialTokens& specials) {
  SLUICE_ASSIGN_OR_RETURN(auto file, SentencePieceFile::Parse(bytes));
  for (int32_t id = 0; id < file.vocabulary.end(); ++id) {
    if (file.TypeOf(id) == Type::kByte && ByteOf(file.vocabulary.TextOf(id)) < 0) {
      return absl::InvalidArgumentError(absl::StrCat("piece ", id, " is not a byte"));
    }
  }
  TextTemplates templates = TemplatesOf(file, specials);
  std::unique_ptr<const SubwordModel> model =
      file.model == SentencePieceFile::Model::kBpe ? MakeBpe(file) : MakeUnigramModel(file);
  return std::make_unique<SentencePieceTokenizer>(std::move(file), std::move(model),
                                                  std::move(templates));
}

}  // namespace sluice::tokenize
