// Speculative decoding: a step computes drafted tokens after the last token of a sequence, and
// keeps those that equal the tokens it draws. Every token is drawn exactly as without drafts, so no
// answer depends on these settings.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/enum_names.h"

namespace sluice {

enum class Speculation : uint8_t { kNone, kNgram, kModel };
constexpr auto EnumNamesOf(Speculation) {
  using enum Speculation;
  return EnumNameTable<Speculation>({{kNone, "none"}, {kNgram, "ngram"}, {kModel, "model"}});
}

// The origin of drafted tokens.
enum class DraftKind : uint8_t {
  kNgram,       // earlier tokens of the prompt or the answer
  kForced,      // the only token that the request allows
  kPrediction,  // the answer that the request predicts
  kModel,       // a smaller model
};
constexpr auto EnumNamesOf(DraftKind) {
  using enum DraftKind;
  return EnumNameTable<DraftKind>(
      {{kNgram, "ngram"}, {kForced, "forced"}, {kPrediction, "prediction"}, {kModel, "model"}});
}
inline constexpr int kDraftKinds = CountEnumerators<DraftKind>();

// Drafts the tokens that may follow the tokens of one row, at almost no cost. Tokens of a draft
// model are drafted by DraftModel (engine/runner/steps/draft_model.h).
class DraftSource {
 public:
  virtual ~DraftSource() = default;
  virtual DraftKind kind() const { return DraftKind::kNgram; }
  // Writes the tokens that probably follow `history` to the beginning of `drafts`, and returns
  // their number. `history` begins with the history of the previous call. Does not allocate.
  virtual int32_t Propose(std::span<const int32_t> history, std::span<int32_t> drafts) = 0;
  // Returns the probability that a drafted token is accepted, as far as it is known before any
  // token was drawn.
  virtual double FirstAcceptance() const { return 0; }
};

// The settings of a model.
struct SpeculationOptions {
  static constexpr int32_t kMaxTokens = 16;

  Speculation kind = Speculation::kNgram;
  std::string draft{};    // the name of the draft model; only for kModel
  int32_t tokens = 8;     // the most drafted tokens of a sequence in a step, at most kMaxTokens
  int32_t sequences = 1;  // the most sequences of a step with drafts

  bool operator==(const SpeculationOptions&) const = default;
};

}  // namespace sluice
