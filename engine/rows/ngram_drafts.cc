#include "engine/rows/ngram_drafts.h"

#include <algorithm>
#include <bit>

#include "base/size_of.h"

namespace sluice {
namespace {

constexpr int64_t kMaxPlaces = 1 << 14;
// Only this many tokens before the end of a text are indexed.
constexpr int32_t kMaxIndexed = 2 * kMaxPlaces;

uint64_t HashOf(std::span<const int32_t> tokens) {
  uint64_t hash = 0;
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

size_t NgramIndex::Places(int64_t max_length) {
  return std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(max_length, 1, kMaxPlaces)));
}

int64_t NgramIndex::Bytes(int64_t max_length) {
  return static_cast<int64_t>(kMatches.size() * Places(max_length)) * kSizeOf<int32_t>;
}

NgramIndex::NgramIndex(int64_t max_length) {
  for (std::vector<int32_t>& ends : ends_) ends.resize(Places(max_length));
}

size_t NgramIndex::PlaceOf(size_t match, std::span<const int32_t> tokens) const {
  return HashOf(tokens.last(kMatches[match])) & (ends_[match].size() - 1);
}

void NgramIndex::Index(std::span<const int32_t> text) {
  const auto length = static_cast<int32_t>(text.size());
  indexed_ = std::max(indexed_, length - kMaxIndexed);
  for (; indexed_ < length; ++indexed_) {
    for (size_t match = 0; match < kMatches.size(); ++match) {
      if (indexed_ < kMatches[match]) continue;
      ends_[match][PlaceOf(match, text.first(indexed_))] = indexed_;
    }
  }
}

int32_t NgramIndex::Find(std::span<const int32_t> text, std::span<const int32_t> tokens) const {
  for (size_t match = 0; match < kMatches.size(); ++match) {
    const int32_t count = kMatches[match];
    if (std::ssize(tokens) < count) continue;
    const int32_t end = ends_[match][PlaceOf(match, tokens)];
    if (end > 0 && std::ranges::equal(text.subspan(end - count, count), tokens.last(count))) {
      return end;
    }
  }
  return 0;
}

int64_t NgramDrafts::Bytes(int64_t max_length) {
  return kSizeOf<NgramDrafts> + NgramIndex::Bytes(max_length);
}

// If the match overlaps the end, the drafts repeat what is drafted.
int32_t NgramDrafts::Propose(std::span<const int32_t> history, std::span<int32_t> drafts) {
  index_.Index(history);
  const int32_t from = index_.Find(history, history);
  if (from == 0) return 0;
  const auto rest = static_cast<size_t>(std::ssize(history) - from);
  for (size_t i = 0; i < drafts.size(); ++i) {
    drafts[i] = i < rest ? history[from + i] : drafts[i - rest];
  }
  return static_cast<int32_t>(drafts.size());
}

PredictedDrafts::PredictedDrafts(std::span<const int32_t> predicted, int64_t max_length)
    : predicted_(predicted), index_(std::ssize(predicted)), others_(max_length) {
  index_.Index(predicted);
}

int64_t PredictedDrafts::Bytes(int64_t predicted, int64_t max_length) {
  return kSizeOf<PredictedDrafts> + NgramIndex::Bytes(predicted) + NgramIndex::Bytes(max_length);
}

// Moves to the predicted token after the end of the history. At the first call, the history has one
// token of the answer.
void PredictedDrafts::Follow(std::span<const int32_t> history) {
  const int64_t drawn = length_ == 0 ? 1 : std::ssize(history) - length_;
  length_ = std::ssize(history);
  for (const int32_t token : history.last(drawn)) {
    const bool follows = next_ >= 0 && next_ < std::ssize(predicted_) && predicted_[next_] == token;
    next_ = follows ? next_ + 1 : -1;
  }
  if (next_ >= 0) return;
  const int32_t found = index_.Find(predicted_, history);
  if (found > 0) next_ = found;
}

int32_t PredictedDrafts::Propose(std::span<const int32_t> history, std::span<int32_t> drafts) {
  Follow(history);
  if (next_ < 0 || next_ >= std::ssize(predicted_)) return others_.Propose(history, drafts);
  const auto count = std::min<int64_t>(std::ssize(predicted_) - next_, std::ssize(drafts));
  std::ranges::copy(predicted_.subspan(next_, count), drafts.begin());
  return static_cast<int32_t>(count);
}

}  // namespace sluice
