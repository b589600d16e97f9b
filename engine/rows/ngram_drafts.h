// Drafts that repeat earlier tokens of a row, or follow a predicted answer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/speculation.h"

namespace sluice {

// Finds the latest place in a text where given tokens occur. Longer matches are tried first. The
// index has a fixed size: a hash table of places for each length of a match. A newer place replaces
// an older one of the same hash, and places are compared with the tokens, so a collision only loses
// a place.
class NgramIndex {
 public:
  // Allocates the index of a text of at most `max_length` tokens.
  explicit NgramIndex(int64_t max_length);
  // Returns the memory that an index allocates.
  static int64_t Bytes(int64_t max_length);

  // Indexes the matches that end before the end of the text, which begins with the text of the
  // previous call. Does not allocate.
  void Index(std::span<const int32_t> text);
  // Returns the position after the latest indexed place of the last tokens of `tokens` in `text`,
  // or 0.
  int32_t Find(std::span<const int32_t> text, std::span<const int32_t> tokens) const;

 private:
  static constexpr std::array<int32_t, 2> kMatches = {4, 2};  // lengths, the longest first

  static size_t Places(int64_t max_length);
  size_t PlaceOf(size_t match, std::span<const int32_t> tokens) const;

  // For each match, by hash: the position after the latest match, or 0.
  std::array<std::vector<int32_t>, kMatches.size()> ends_;
  int32_t indexed_ = 0;  // matches that end before this position are indexed
};

// Drafts the tokens after the latest earlier place of the last tokens of the history.
class NgramDrafts final : public DraftSource {
 public:
  explicit NgramDrafts(int64_t max_length) : index_(max_length) {}
  // Returns the memory of such an object.
  static int64_t Bytes(int64_t max_length);

  int32_t Propose(std::span<const int32_t> history, std::span<int32_t> drafts) override;

 private:
  NgramIndex index_;
};

// Drafts the tokens of a predicted answer. Where the answer leaves the prediction, looks for the
// answer's last tokens in the prediction; as long as they are not found, drafts n-grams of the
// history.
class PredictedDrafts final : public DraftSource {
 public:
  // `predicted` must outlive it.
  PredictedDrafts(std::span<const int32_t> predicted, int64_t max_length);
  // Returns the memory of such an object, without the predicted tokens.
  static int64_t Bytes(int64_t predicted, int64_t max_length);

  DraftKind kind() const override { return DraftKind::kPrediction; }
  int32_t Propose(std::span<const int32_t> history, std::span<int32_t> drafts) override;
  double FirstAcceptance() const override { return 0.8; }

 private:
  void Follow(std::span<const int32_t> history);

  const std::span<const int32_t> predicted_;
  NgramIndex index_;  // of predicted_
  NgramDrafts others_;
  int64_t length_ = 0;  // of the history that was followed; 0 before the first call
  int64_t next_ = 0;    // the index of the predicted next token; -1 if there is none
};

}  // namespace sluice
