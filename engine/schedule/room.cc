#include "engine/schedule/room.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace sluice {

RunLimits RunLimitsOf(const BatchOptions& options, const Bucket& largest) {
  if (options.policy != PolicyKind::kCutAndFill || options.prefill_tokens == 0) {
    return {.chunk_tokens = largest.tokens,
            .sequences = std::min(largest.sequences, largest.tokens)};
  }
  const int32_t left = largest.tokens - largest.sequences + 1;
  const int32_t chunk = std::min(options.prefill_tokens, std::max(left, (largest.tokens + 1) / 2));
  return {.chunk_tokens = chunk,
          .sequences = std::min(largest.sequences, largest.tokens - chunk + 1)};
}

Room::Room(const BatchOptions& options, const SequenceQueue& queue, const FormerInputs& inputs,
           int32_t decodes)
    : decodes_(decodes) {
  const Bucket& largest = inputs.ladder->largest();
  const auto running = static_cast<int64_t>(queue.running());
  const bool heeds_budget = decodes > 0 && options.prefill_tokens > 0;
  prompt_tokens_ = heeds_budget ? options.prefill_tokens : std::numeric_limits<int32_t>::max();
  staying_ = RunLimitsOf(options, largest).sequences - running;
  pages_ = inputs.available_pages - queue.running_pages() - running;
  joins_ = options.continuous || running == 0;
  nobody_ = running == 0;
  *this = In(largest);
  SLUICE_CHECK(valid());
}

Room Room::In(const Bucket& bucket) const {
  Room room = *this;
  room.tokens_ = std::min(bucket.tokens - decodes_, prompt_tokens_);
  room.sequences_ = bucket.sequences - decodes_;
  return room;
}

bool Room::Holds(const WaitingSequence& sequence) const {
  if (!Fits(sequence)) return false;
  if (sequence.running || nobody_) return true;
  const int stays = Stays(sequence) ? 1 : 0;
  return joins_ && (stays == 0 || staying_ > 0) && sequence.pages + stays <= pages_;
}

void Room::Take(const WaitingSequence& sequence) {
  tokens_ -= sequence.tokens;
  --sequences_;
  nobody_ = false;
  if (sequence.running) return;
  const int stays = Stays(sequence) ? 1 : 0;
  staying_ -= stays;
  pages_ -= sequence.pages + stays;
}

}  // namespace sluice
