// The order of a launch's accesses that does not come from barriers: arrivals of bulk copies, and
// fences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace sluice::simt {

// A thread between two of its barriers. Launches count from 1; launch 0 means no thread.
struct Actor {
  uint32_t launch = 0;
  uint32_t block = 0;
  uint32_t block_epoch = 0;  // barriers of the block passed
  uint32_t warp_epoch = 0;   // barriers of the warp passed
  uint32_t thread = 0;       // in the block, or kBulkCopy and the number of a phase of bulk copies

  // This bit of `thread` marks the writer of the data of bulk copies.
  static constexpr uint32_t kBulkCopy = 1u << 31;
  bool is_bulk_copy() const { return (thread & kBulkCopy) != 0; }

  bool operator==(const Actor&) const = default;
};

// The blocks of a launch run one after another. The order that fences create lasts until the end of
// the launch.
class BlockOrder {
 public:
  void BeginLaunch();
  void BeginBlock(size_t threads);

  // Returns the number of a new phase of bulk copies of the block.
  uint32_t AddPhase();
  // Notes that `by` has waited for the phase.
  void NoteWait(uint32_t phase, const Actor& by);
  // Returns whether `by` has waited for the phase, or another thread has before a barrier of the
  // block.
  bool HasArrived(uint32_t phase, const Actor& by) const;

  void NoteFence(const Actor& by);
  void NoteAtomic(uintptr_t address, const Actor& by);
  // Returns whether fences make the accesses of `by`, of another block of the launch, visible to
  // `to`.
  bool IsShown(const Actor& by, const Actor& to) const;

 private:
  struct Phase {
    std::vector<bool> waited;  // by thread
    bool any = false;          // whether a thread has waited
    uint32_t first_epoch = 0;  // the barriers that the first waiting thread had passed
  };
  // A fence of a thread that later added to an address. It publishes the accesses of its block
  // before the thread's last barrier, and the accesses of the thread itself.
  struct Fenced {
    uint32_t block, block_epoch, thread;
  };
  // A fence that a thread of the running block has observed.
  struct Seen {
    Fenced fence;
    uint32_t thread, block_epoch;
  };

  // The fences that additions to an address have published. They are kept until the launch ends.
  // The members below are kept until the block ends.
  std::map<uintptr_t, std::vector<Fenced>> additions_;
  size_t threads_ = 0;
  std::vector<Phase> phases_;
  std::map<uint32_t, uint32_t> fences_;               // the epoch of a thread's last fence
  std::map<uint32_t, std::vector<Fenced>> received_;  // by thread; observed after its next fence
  std::vector<Seen> seen_;
};

}  // namespace sluice::simt
