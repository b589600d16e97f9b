// Runs actions at given times on one thread, never early and in the order of their times.
#pragma once

#include <functional>
#include <utility>

#include "base/clock.h"
#include "base/work_queue.h"

namespace sluice::load {

class DelayLine {
 public:
  using Action = std::function<void()>;

  DelayLine() : queue_({.clock = Clock::Real()}, [](Action& action) { action(); }) {}

  // Runs the remaining actions at once.
  ~DelayLine() { Hurry(); }

  // From now on, runs all actions at once and ignores their times.
  void Hurry() { queue_.Hurry(); }

  void At(MonoTime when, Action action) { queue_.PostAt(when, std::move(action)); }

 private:
  WorkQueue<Action> queue_;
};

}  // namespace sluice::load
