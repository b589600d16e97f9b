// Simulates one daemon of a fleet on virtual time.
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

// The model that all replicas of a fleet share. It must outlive them.
struct ReplicaModel {
  BatchOptions batch{};  // the policy must not pad
  std::shared_ptr<const Ladder> ladder{};
  CostModel warm{};  // the costs of a replica after its warm-up
  StepCosts costs{};
  std::function<void(MonoTime arrived, MonoTime end)> on_done{};  // called for each sequence
};

// A scheduler and its device. Unlike RunVirtually, it can be observed at any time, even within a
// step, because a fleet's balancer and autoscaler do so. Every sequence takes only one step.
class Replica {
 public:
  explicit Replica(const ReplicaModel* model);

  // Simulates until `time`. A time in the past has no effect.
  void RunUntil(MonoTime time);
  // Adds a sequence at the time of the last RunUntil. Requires that `tokens` fit the ladder.
  void Arrive(int32_t tokens);

  size_t outstanding() const { return sequences_.size(); }
  // Returns the daemon's sluice_estimated_drain_seconds for all admitted sequences that have not
  // ended.
  double DrainSeconds() const;
  // Returns the time spent in steps until the last RunUntil.
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
  int64_t tokens_ = 0;  // of all sequences

  // The running step if `batch_` is not empty; otherwise the scheduler is waiting.
  std::vector<WaitingSequence*> batch_;
  StepShape shape_{};
  MonoTime begin_{};
  MonoTime next_ = MonoTime::max();  // the step's end, or the time of the next decision
  nanoseconds busy_{0};              // the time in steps that have ended
};

}  // namespace sluice::loadtest
