// One daemon of a fleet on virtual time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/schedule/scheduler.h"
#include "loadtest/simulate/experiment.h"

namespace sluice::loadtest {

// What all replicas of a fleet have in common. Outlives them.
struct ReplicaModel {
  BatchOptions batch{};  // no policy that pads
  std::shared_ptr<const Ladder> ladder{};
  CostModel warm{};  // what a replica has learned by the end of its warm-up
  StepCosts costs{};
  std::function<void(MonoTime arrived, MonoTime end)> on_done{};  // of each sequence
};

// A scheduler and its device. Unlike RunVirtually it can be looked at at any time, within a step
// too, as a fleet's balancer and autoscaler do; in turn every sequence takes one step.
class Replica {
 public:
  explicit Replica(const ReplicaModel* model);

  // Lets everything happen that happens up to `time`. A time in the past has no effect.
  void RunUntil(MonoTime time);
  // At the time of the last RunUntil. `tokens` fit the ladder.
  void Arrive(int32_t tokens);

  size_t outstanding() const { return sequences_.size(); }
  // The daemon's sluice_estimated_drain_seconds: for all that was admitted and has not ended.
  double DrainSeconds() const;
  // Spent in steps by the time of the last RunUntil.
  double BusySeconds() const;

 private:
  bool Running() const { return !batch_.empty(); }
  void Decide();
  void EndStep();

  const ReplicaModel& model_;
  Scheduler scheduler_;
  MonoTime now_{};
  absl::node_hash_map<uint64_t, WaitingSequence> sequences_;  // by ticket
  uint64_t last_ticket_ = 0;
  int64_t tokens_ = 0;  // of all of them

  // A step if `batch_` is not empty, else what the scheduler waits for.
  std::vector<WaitingSequence*> batch_;
  StepShape shape_{};
  MonoTime begin_{};
  MonoTime next_ = MonoTime::max();  // the step's end, or when to decide again
  nanoseconds busy_{0};              // in steps that ended
};

}  // namespace sluice::loadtest
