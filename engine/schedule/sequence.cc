#include "engine/schedule/sequence.h"

#include <initializer_list>

#include "base/check.h"

namespace sluice {
namespace {

constexpr uint32_t Set(std::initializer_list<SequenceState> states) {
  uint32_t set = 0;
  for (const SequenceState state : states) set |= 1u << static_cast<int>(state);
  return set;
}

constexpr uint32_t Successors(SequenceState from) {
  using enum SequenceState;
  switch (from) {
    case kHeld:
      return Set({kQueued, kDone});
    case kQueued:
      return Set({kRunning, kDone});
    case kRunning:
      return Set({kQueued, kQueuedAhead, kDone});
    case kQueuedAhead:
      return Set({kRunning, kRunningAhead});
    case kRunningAhead:
      return Set({kRunning, kEnding, kRewound});
    case kEnding:
      return Set({kDone});
    case kRewound:
      return Set({kRunning});
    case kDone:
      return 0;
  }
  return 0;
}

}  // namespace

bool MayMove(SequenceState from, SequenceState to) { return (Successors(from) & Set({to})) != 0; }

void PagedSequence::MoveTo(SequenceState to) {
  SLUICE_CHECK(MayMove(state_, to));
  state_ = to;
}

}  // namespace sluice
