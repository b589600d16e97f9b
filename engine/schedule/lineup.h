// Who may ride in the next step, in the order in which they are asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/schedule/room.h"

namespace sluice {

// The front of a queue, prepared for one decision of CutAndFill. Decodes ride whatever else does. The
// others come in the order of the queue, but urgent ones, the earliest deadline first, before them, as
// far as max_overtakes lets them.
//
// Left out is who could not ride even alone with the decodes: for want of pages, or of a place to stay.
// Running ones pass it and go on; of the others no more do than its max_overtakes allows, so that in
// the end there is room. When nothing runs nobody is left out but who is barred.
class Lineup {
 public:
  // Sequences behind the prefix that may fill.
  static constexpr size_t kWindow = 256;
  // From the front of the queue, in which urgent sequences are found.
  static constexpr size_t kUrgentReach = 1024;
  // That go first in one batch.
  static constexpr size_t kMostUrgent = 64;

  explicit Lineup(const BatchOptions& options) : options_(options) {}

  // Replaces it. Urgent are those with a deadline at or before `urgent_until`. Allocates nothing once
  // it has seen a queue as large.
  void Load(const SequenceQueue& queue, const FormerInputs& inputs, MonoTime urgent_until);

  std::span<WaitingSequence* const> decodes() const { return decodes_; }
  std::span<WaitingSequence* const> riders() const { return riders_; }
  size_t urgent() const { return urgent_; }  // the first of the riders that are

  // Beside the decodes, in the ladder's largest bucket and in any other.
  const Room& room() const { return room_; }
  Room RoomIn(const Bucket& bucket) const { return room_.In(bucket); }

  // A running one passes whom it likes; another only if fewer than this many do pass those who were
  // left out ahead of it.
  int32_t MayPass(size_t rider) const { return may_pass_[rider]; }
  // Riders from this one on, none of them urgent, pass somebody who was left out.
  size_t first_passing() const { return first_passing_; }
  // How many more may pass it.
  int32_t Allowance(const WaitingSequence& sequence) const {
    return options_.max_overtakes - sequence.overtaken;
  }

 private:
  void SplitRunning(const SequenceQueue& queue);
  void LoadFresh(const SequenceQueue& queue, size_t reach);
  void PickUrgent(const SequenceQueue& queue, MonoTime until);
  void AddOthers(const SequenceQueue& queue);
  void LeaveOut();

  const BatchOptions options_;
  std::vector<WaitingSequence*> decodes_, riders_;
  size_t urgent_ = 0;
  size_t first_passing_ = 0;
  std::vector<int32_t> may_pass_;
  Room room_;

  // Scratch, all but the first in the order of the queue.
  std::vector<WaitingSequence*> by_deadline_, jumped_;
  std::vector<WaitingSequence*> fresh_, prompts_,
      others_;                      // prompts: running, and not yet computed
  std::vector<int32_t> allowance_;  // how many may pass those ahead of an index of others_
  size_t window_end_ = 0;           // of fresh_
};

}  // namespace sluice
