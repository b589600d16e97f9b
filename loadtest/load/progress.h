// What a phase looks like while it runs: a bar on a terminal, a plain line now and then elsewhere.
#pragma once

#include <chrono>
#include <ostream>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "loadtest/load/run.h"

namespace sluice::load {

// Without a line break. `share` of the phase that has passed, 0 to 1.
std::string ProgressLine(const std::string& title, double share, int64_t sent, int64_t done,
                         int64_t missed);

class Progress {
 public:
  // Draws until destroyed. `out` null: nothing is drawn.
  Progress(std::ostream* out, bool terminal, std::string title, nanoseconds duration,
           const Live* live);
  ~Progress();

 private:
  void Run();

  std::ostream* const out_;
  const bool terminal_;
  const std::string title_;
  const nanoseconds duration_;
  const Live& live_;
  Mutex mu_;
  CondVar ending_;
  bool end_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace sluice::load
