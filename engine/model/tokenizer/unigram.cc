#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/interruption.h"
#include "base/status_macros.h"
#include "base/work_memory.h"
#include "engine/model/tokenizer/steps.h"
#include "engine/model/tokenizer/subword_model.h"
#include "engine/model/tokenizer/trie.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {
namespace {

class Unigram final : public SubwordModel {
 public:
  explicit Unigram(UnigramPieces pieces) : pieces_(std::move(pieces)) {
    for (int32_t id = 0; id < pieces_.vocabulary.end(); ++id) {
      if (pieces_.segmented[id]) {
        trie_.Add(pieces_.vocabulary.TextOf(id), id);
      }
    }
  }

  absl::Status Encode(std::string_view piece, std::vector<int32_t>* ids,
                      std::vector<Place>* places) const override {
    WorkMemory memory;
    SLUICE_RETURN_IF_ERROR(memory.Hold((std::ssize(piece) + 1) * kBytesOfByte));
    SLUICE_ASSIGN_OR_RETURN(const std::vector<Node> best, BestPaths(piece));
    std::vector<std::string_view> parts;
    bool after_unknown = false;
    for (size_t end = piece.size(); end > 0; end = best[end].begin) {
      const Node& node = best[end];
      const bool unknown = node.id == kNoToken || node.id == pieces_.unknown;
      if (unknown && after_unknown) {  // joins one run of unknown characters
        const std::string_view run = parts.back();
        parts.back() = piece.substr(node.begin, end - node.begin + run.size());
      } else {
        parts.push_back(piece.substr(node.begin, end - node.begin));
      }
      after_unknown = unknown;
    }
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      const size_t before = ids->size();
      SLUICE_RETURN_IF_ERROR(Append(*part, ids));
      const size_t begin = part->data() - piece.data();
      AppendPlaces(*ids, before, {begin, begin + part->size()}, places);
    }
    return absl::OkStatus();
  }

  const Vocabulary& vocabulary() const override { return pieces_.vocabulary; }
  bool joins_unknown() const override { return !pieces_.byte_fallback; }

 private:
  // The last token of the best path that ends at a byte.
  struct Node {
    double score = 0;
    size_t begin = 0;
    int32_t id = kNoToken;
    bool reached = false;
  };

  // The memory of a node and, in a list whose old and new buffers exist at the same time when it
  // grows, of a part.
  static constexpr int64_t kBytesOfByte = sizeof(Node) + 3 * sizeof(std::string_view);

  absl::StatusOr<std::vector<Node>> BestPaths(std::string_view piece) const {
    std::vector<Node> best(piece.size() + 1);
    InterruptionCounter counter;
    for (size_t at = 0; at < piece.size();) {
      size_t next = at;
      NextCodePoint(piece, &next);
      const double before = best[at].score;
      bool character = false;
      const auto offer = [&](size_t end, double score, int32_t id) {
        Node& node = best[end];
        const double sum = Rounded(before + score);
        if (node.reached && !(sum > node.score)) return;
        node = {sum, at, id, true};
      };
      const size_t steps = trie_.Prefixes(piece.substr(at), [&](size_t bytes, int32_t id) {
        offer(at + bytes, pieces_.scores[id], id);
        character |= at + bytes == next;
      });
      SLUICE_RETURN_IF_ERROR(counter.Check(steps));
      if (!character) offer(next, pieces_.unknown_score, kNoToken);
      at = next;
    }
    return best;
  }

  double Rounded(double score) const {
    return pieces_.single_precision ? static_cast<double>(static_cast<float>(score)) : score;
  }

  absl::Status Append(std::string_view part, std::vector<int32_t>* ids) const {
    const int32_t id = pieces_.vocabulary.IdOf(part);
    if (id != kNoToken && pieces_.segmented[id]) {
      ids->push_back(id);
      return absl::OkStatus();
    }
    if (pieces_.byte_fallback && pieces_.vocabulary.AppendBytes(part, ids)) {
      return absl::OkStatus();
    }
    if (pieces_.unknown == kNoToken) {
      return absl::FailedPreconditionError("the tokenizer has no token for one of its characters");
    }
    ids->push_back(pieces_.unknown);
    return absl::OkStatus();
  }

  UnigramPieces pieces_;
  Trie trie_;
};

bool AddPiece(const nlohmann::json& entry, size_t id, UnigramPieces* pieces) {
  if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
    return false;
  }
  pieces->scores.push_back(entry[1].get<double>());
  pieces->unknown_score = std::min(pieces->unknown_score, pieces->scores.back());
  // Of equal pieces the last one is found in texts, as in the library.
  const auto text = entry[0].get<std::string>();
  const int32_t earlier = pieces->vocabulary.IdOf(text);
  if (earlier != kNoToken) pieces->segmented[earlier] = false;
  pieces->segmented.push_back(true);
  return pieces->vocabulary.AddOrReplace(text, static_cast<int32_t>(id));
}

}  // namespace

std::unique_ptr<const SubwordModel> ReadUnigram(ObjectReader& fields) {
  const nlohmann::json* list = fields.Find("vocab");
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMaxTokens) {
    fields.Fail("vocab", absl::StrCat("is not a list of 1 to ", kMaxTokens, " pieces"));
    return nullptr;
  }
  UnigramPieces pieces;
  for (size_t id = 0; id < list->size(); ++id) {
    if (AddPiece((*list)[id], id, &pieces)) continue;
    fields.Fail(absl::StrCat("vocab[", id, "]"), "is not a list of a piece and its score");
    return nullptr;
  }
  pieces.unknown_score -= kUnknownPenalty;
  if (fields.Has("unk_id")) {
    const auto last = std::ssize(*list) - 1;
    pieces.unknown = fields.Integer("unk_id", 0, last);
  }
  pieces.byte_fallback = fields.Boolean("byte_fallback", false);
  return MakeUnigram(std::move(pieces));
}

std::unique_ptr<const SubwordModel> MakeUnigram(UnigramPieces pieces) {
  return std::make_unique<Unigram>(std::move(pieces));
}

}  // namespace sluice::tokenize
