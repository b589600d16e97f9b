#include <utility>

#include "base/interruption.h"
#include "base/status_macros.h"
#include "engine/model/tokenizer/merging.h"
#include "engine/model/tokenizer/subword_model.h"
#include "engine/model/tokenizer/trie.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {
namespace {

class ScoredBpe final : public SubwordModel {
 public:
  explicit ScoredBpe(ScoredPieces pieces) : pieces_(std::move(pieces)) {
    for (const int32_t id : pieces_.unsplit) unsplit_.Add(pieces_.vocabulary.TextOf(id), id);
  }

  absl::Status Encode(std::string_view piece, std::vector<int32_t>* ids,
                      std::vector<Place>* places) const override {
    WorkMemory memory;
    SLUICE_RETURN_IF_ERROR(memory.Hold(MemoryOfSymbols(piece)));
    SLUICE_ASSIGN_OR_RETURN(std::vector<Symbol> symbols, Split(piece));
    MergeLoop merges(&symbols, [this, piece](const Symbol& left, const Symbol& right) {
      return Find(piece, left, right);
    });
    SLUICE_RETURN_IF_ERROR(merges.Run());
    bool after_unknown = false;
    for (const Symbol& symbol : symbols) {
      if (symbol.bytes == 0) continue;
      const bool unknown = symbol.id == kNoToken;
      const std::string_view text = piece.substr(symbol.begin, symbol.bytes);
      const size_t before = ids->size(), end = size_t{symbol.begin} + symbol.bytes;
      const bool bytes =
          unknown && pieces_.byte_fallback && pieces_.vocabulary.AppendBytes(text, ids);
      if (!bytes && !(unknown && after_unknown)) {
        ids->push_back(unknown ? pieces_.unknown : IdOf(symbol));
      } else if (!bytes && places != nullptr) {
        places->back().end = end;  // joins the unknown token before it
      }
      AppendPlaces(*ids, before, {symbol.begin, end}, places);
      after_unknown = unknown && !bytes;
    }
    return absl::OkStatus();
  }

  const Vocabulary& vocabulary() const override { return pieces_.vocabulary; }
  bool joins_unknown() const override { return !pieces_.byte_fallback; }

 private:
  // A symbol that never merges has an id below kNoToken.
  static constexpr int32_t kFrozen = -2;
  static int32_t IdOf(const Symbol& symbol) {
    return symbol.id <= kFrozen ? kFrozen - symbol.id : symbol.id;
  }

  absl::StatusOr<std::vector<Symbol>> Split(std::string_view piece) const {
    std::vector<Symbol> symbols;
    InterruptionCounter counter;
    for (size_t at = 0; at < piece.size();) {
      Symbol& symbol = symbols.emplace_back();
      symbol.begin = static_cast<uint32_t>(at);
      const Trie::Match match = unsplit_.Longest(piece.substr(at));
      SLUICE_RETURN_IF_ERROR(counter.Check(match.steps));
      if (match.bytes > 0) {
        symbol.id = kFrozen - match.value;
        at += match.bytes;
      } else {
        const size_t begin = at;
        NextCodePoint(piece, &at);
        symbol.id = Merged(piece.substr(begin, at - begin));
      }
      symbol.bytes = static_cast<uint32_t>(at) - symbol.begin;
    }
    return symbols;
  }

  int32_t Merged(std::string_view text) const {
    const int32_t id = pieces_.vocabulary.IdOf(text);
    return id != kNoToken && pieces_.merged[id] ? id : kNoToken;
  }

  std::optional<Merge> Find(std::string_view piece, const Symbol& left, const Symbol& right) const {
    if (left.id <= kFrozen || right.id <= kFrozen) return std::nullopt;
    const size_t bytes = size_t{left.bytes} + right.bytes;
    if (bytes > pieces_.vocabulary.longest_bytes()) return std::nullopt;
    const int32_t id = Merged(piece.substr(left.begin, bytes));
    if (id == kNoToken) return std::nullopt;
    return Merge{-pieces_.scores[id], id};
  }

  ScoredPieces pieces_;
  Trie unsplit_;
};

}  // namespace

std::unique_ptr<const SubwordModel> MakeScoredBpe(ScoredPieces pieces) {
  return std::make_unique<ScoredBpe>(std::move(pieces));
}

}  // namespace sluice::tokenize
