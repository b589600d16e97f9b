#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/model/tokenizer/merging.h"
#include "engine/model/tokenizer/steps.h"
#include "engine/model/tokenizer/subword_model.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {
namespace {

struct MergeTable {
  absl::flat_hash_map<uint64_t, Merge> merges;

  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  std::optional<Merge> operator()(const Symbol& left, const Symbol& right) const {
    const auto it = merges.find(Key(left.id, right.id));
    if (it == merges.end()) return std::nullopt;
    return it->second;
  }
};

struct BpeOptions {
  std::string prefix;  // put before symbols that do not begin a piece
  std::string suffix;  // put after the symbol that ends a piece
  int32_t unknown = kNoToken;
  bool lacks_unknown = false;  // whether the file names an unknown token that does not exist
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // whether a piece that is a token stays whole
};

class Bpe final : public SubwordModel {
 public:
  Bpe(Vocabulary vocabulary, MergeTable table, BpeOptions options)
      : vocabulary_(std::move(vocabulary)),
        table_(std::move(table)),
        options_(std::move(options)) {}

  absl::Status Encode(std::string_view piece, std::vector<int32_t>* ids,
                      std::vector<Place>* places) const override {
    if (options_.ignore_merges) {
      if (const int32_t whole = vocabulary_.IdOf(piece); whole != kNoToken) {
        ids->push_back(whole);
        AppendPlaces(*ids, ids->size() - 1, {0, piece.size()}, places);
        return absl::OkStatus();
      }
    }
    WorkMemory memory;
    SLUICE_RETURN_IF_ERROR(memory.Hold(MemoryOfSymbols(piece)));
    SLUICE_ASSIGN_OR_RETURN(std::vector<Symbol> symbols, Characters(piece));
    MergeLoop merges(
        &symbols, [this](const Symbol& left, const Symbol& right) { return table_(left, right); });
    SLUICE_RETURN_IF_ERROR(merges.Run());
    for (const Symbol& symbol : symbols) {
      if (symbol.bytes == 0) continue;
      ids->push_back(symbol.id);
      const size_t begin = std::min<size_t>(symbol.begin, piece.size());
      AppendPlaces(*ids, ids->size() - 1, {begin, std::min(begin + symbol.bytes, piece.size())},
                   places);
    }
    return absl::OkStatus();
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  bool joins_unknown() const override {
    return options_.unknown != kNoToken && options_.fuse_unknown;
  }

 private:
  absl::StatusOr<std::vector<Symbol>> Characters(std::string_view piece) const {
    std::vector<Symbol> symbols;
    bool after_unknown = false;
    for (size_t at = 0; at < piece.size();) {
      const size_t begin = at;
      NextCodePoint(piece, &at);
      const size_t known = symbols.size();
      if (AddKnown(piece, begin, at, &symbols)) {
        after_unknown = false;
      } else if (options_.unknown != kNoToken) {
        AddUnknown(begin, at, after_unknown, &symbols);
        after_unknown = true;
      } else if (options_.lacks_unknown) {
        return absl::FailedPreconditionError(
            "the tokenizer has no token for one of its characters");
      } else {
        symbols.resize(known);  // it has no token
      }
    }
    return symbols;
  }

  bool AddKnown(std::string_view piece, size_t begin, size_t end,
                std::vector<Symbol>* symbols) const {
    std::string character(piece.substr(begin, end - begin));
    if (begin > 0) character.insert(0, options_.prefix);
    if (end == piece.size()) character += options_.suffix;
    const int32_t id = vocabulary_.IdOf(character);
    if (id != kNoToken) {
      Add(id, begin, end - begin, symbols);
      return true;
    }
    std::vector<int32_t> bytes;
    if (!options_.byte_fallback || !vocabulary_.AppendBytes(character, &bytes)) return false;
    // The symbols of the bytes have one byte each, so that merges add up.
    for (size_t i = 0; i < bytes.size(); ++i) Add(bytes[i], begin + i, 1, symbols);
    return true;
  }

  void AddUnknown(size_t begin, size_t end, bool after_unknown,
                  std::vector<Symbol>* symbols) const {
    if (after_unknown && options_.fuse_unknown) {
      symbols->back().bytes += static_cast<uint32_t>(end - begin);
    } else {
      Add(options_.unknown, begin, end - begin, symbols);
    }
  }

  static void Add(int32_t id, size_t begin, size_t bytes, std::vector<Symbol>* symbols) {
    Symbol& symbol = symbols->emplace_back();
    symbol.id = id;
    symbol.begin = static_cast<uint32_t>(begin);
    symbol.bytes = static_cast<uint32_t>(bytes);
  }

  Vocabulary vocabulary_;
  MergeTable table_;
  BpeOptions options_;
};

// Reads "a b", or ["a", "b"] in newer files.
std::optional<std::pair<std::string, std::string>> ReadPair(const nlohmann::json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  if (!merge.is_string()) return std::nullopt;
  const auto& text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    return std::nullopt;
  }
  return std::pair(text.substr(0, space), text.substr(space + 1));
}

MergeTable ReadMerges(const Vocabulary& vocabulary, const std::string& prefix,
                      ObjectReader& fields) {
  MergeTable table;
  const nlohmann::json* list = fields.Find("merges");
  if (list == nullptr || !list->is_array()) {
    fields.Fail("merges", "is not a list");
    return table;
  }
  for (size_t rank = 0; rank < list->size(); ++rank) {
    const auto pair = ReadPair((*list)[rank]);
    const int32_t left = pair ? vocabulary.IdOf(pair->first) : kNoToken;
    const int32_t right = pair ? vocabulary.IdOf(pair->second) : kNoToken;
    int32_t merged = kNoToken;
    if (left != kNoToken && right != kNoToken && pair->second.size() >= prefix.size()) {
      merged = vocabulary.IdOf(pair->first + pair->second.substr(prefix.size()));
    }
    if (merged == kNoToken) {
      fields.Fail(absl::StrCat("merges[", rank, "]"), "is not two tokens that make a token");
      return table;
    }
    table.merges[MergeTable::Key(left, right)] = {static_cast<double>(rank), merged};
  }
  return table;
}

}  // namespace

std::unique_ptr<const SubwordModel> ReadBpe(ObjectReader& fields) {
  if (fields.Has("dropout") && fields.Number("dropout", 0, 1) > 0) {
    fields.Fail("dropout", "makes encoding random, which is not supported; must be 0");
  }
  auto vocabulary = Vocabulary::Parse(fields.Find("vocab"), fields.PathOf("vocab"));
  if (!vocabulary.ok()) {
    fields.Fail("vocab", absl::StrCat("is refused: ", vocabulary.status().message()));
    return nullptr;
  }
  BpeOptions options;
  options.prefix = fields.String("continuing_subword_prefix", kMaxAffixBytes, "");
  options.suffix = fields.String("end_of_word_suffix", kMaxAffixBytes, "");
  options.fuse_unknown = fields.Boolean("fuse_unk", false);
  options.byte_fallback = fields.Boolean("byte_fallback", false);
  options.ignore_merges = fields.Boolean("ignore_merges", false);
  const std::string unknown = fields.String("unk_token", kMaxTokenBytes, "");
  if (fields.Has("unk_token")) {
    options.unknown = vocabulary->IdOf(unknown);
    options.lacks_unknown = options.unknown == kNoToken;
  }
  MergeTable table = ReadMerges(*vocabulary, options.prefix, fields);
  return std::make_unique<Bpe>(*std::move(vocabulary), std::move(table), std::move(options));
}

}  // namespace sluice::tokenize
