// A record of all inputs and decisions of a scheduler, for the simulator and for sizing.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "base/mutex.h"
#include "base/periodic_thread.h"
#include "engine/backend.h"
#include "engine/schedule/scheduler.h"

namespace sluice {

// The writer of a journal.
//
// Concurrency contract
//   * Called under the lock of the scheduler's owner. A call formats a line into a buffer of fixed
//     size. A line that does not fit is dropped and counted. Only the writing thread and the
//     destructor wait for the disk. No call allocates.
//   * One thread writes. After an error it drops and counts the lines that it could not write, and
//     continues. The file always consists of whole lines: a partial line, written now or by an
//     earlier process, is cut off.
//   * Once the file has `most_bytes`, further lines are dropped and counted in the same way.
//   * Journals of the same path write one after another, in the order of StartWriting: a journal
//     begins once the earlier ones have written the lines before their StopWriting. Lines before
//     StartWriting stay in the buffer. Lines after StopWriting are dropped and not counted.
//   * The destructor writes the buffered lines. If an earlier journal still has to write, it drops
//     and counts them.
class Journal : public SchedulerObserver {
 public:
  static constexpr size_t kBufferBytes = 4 << 20;

  struct Start {
    const Model* model;  // model, backend and half_life are only used for the start line
    const BackendInfo* backend;
    nanoseconds half_life;
    BatchOptions batch;
    CostState costs;
    int64_t most_bytes = std::numeric_limits<int64_t>::max();  // of the file
  };
  // Called on the writing thread.
  struct Callbacks {
    // With a sentence if another process writes the file, and when lines are lost: once, and again
    // after lines were written without a loss.
    std::function<void(std::string_view)> notice = [](std::string_view) {};
    std::function<void()> write_failed = [] {};                // after each write that failed
    std::function<void(int64_t)> lines_lost = [](int64_t) {};  // with the number of further ones
  };
  // Opens `path` for appending, and puts the start line into the buffer. Returns Unavailable with
  // the path in the message.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const std::string& path, const Start& start,
                                                       Callbacks callbacks);
  ~Journal() override;

  // The first write cuts off a line without an end.
  void StartWriting();
  void StopWriting();

  void OnPush(const WaitingSequence& sequence, bool arrival) override;
  void OnRemove(const WaitingSequence& sequence) override;
  void OnRevise(const WaitingSequence& sequence, const NextStep& next) override;
  void OnDecide(const DecisionTime& at, const BatchDecision& decision,
                std::span<WaitingSequence* const> batch) override;
  void OnObserve(const StepShape& step, double seconds) override;
  void OnLadder(const Ladder& ladder) override;

 private:
  class Line;
  // The journals of a path that write one after another. The first one writes.
  struct Turns {
    Mutex mu;
    std::list<Journal*> queue ABSL_GUARDED_BY(mu);
  };
  static std::shared_ptr<Turns> TurnsOf(const std::string& path);

  Journal(std::string path, Descriptor file, int64_t most_bytes, Callbacks callbacks);

  // Calls `write` to append a line of at most `most_bytes` to the buffer, or counts it as dropped.
  template <typename Write>
  void Append(size_t most_bytes, const Write& write);
  // Empties the buffer if it is this journal's turn, and ends the turn after StopWriting.
  void WriteLines();
  bool HasTurn() const;
  // Leaves the queue, and wakes the next journal.
  void EndTurn();
  // Writes all of `lines`. After an error, undoes a partial write if possible.
  absl::Status WriteAll(std::string_view lines) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mu_);

  const std::string path_;
  const Descriptor file_;
  const int64_t most_bytes_;
  const Callbacks callbacks_;
  const std::shared_ptr<Turns> turns_;
  std::list<Journal*> place_ ABSL_GUARDED_BY(turns_->mu) = {this};  // empty while it is queued

  Mutex file_mu_;  // held while lines are written; taken before mu_
  std::string writing_ ABSL_GUARDED_BY(file_mu_);
  int64_t bytes_ ABSL_GUARDED_BY(file_mu_) = -1;  // of the file; -1: it is not examined yet
  bool noticed_loss_ ABSL_GUARDED_BY(file_mu_) = false;

  enum class Writing { kNotYet, kOn, kStopped };
  Mutex mu_;
  Writing state_ ABSL_GUARDED_BY(mu_) = Writing::kNotYet;
  std::string buffer_ ABSL_GUARDED_BY(mu_);         // whole lines, within its capacity
  int64_t unwritten_gap_ ABSL_GUARDED_BY(mu_) = 0;  // lines lost since the last dropped line
  int64_t unreported_ ABSL_GUARDED_BY(mu_) = 0;     // lines that did not fit into the buffer

  std::optional<PeriodicThread> writer_;  // woken when the buffer is no longer empty
};

}  // namespace sluice
