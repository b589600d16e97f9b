// Shows the progress of a phase, as a bar on a terminal and as occasional plain lines elsewhere.
#pragma once

#include <optional>
#include <ostream>
#include <string>

#include "base/clock.h"
#include "base/periodic_thread.h"
#include "loadtest/load/run.h"

namespace sluice::load {

// Returns a line without a line break. `share` is the part of the phase that has passed, 0 to 1.
std::string ProgressLine(const std::string& title, double share, int64_t sent, int64_t done,
                         int64_t missed);

class Progress {
 public:
  // Draws until destroyed, or not at all if `out` is null.
  Progress(std::ostream* out, bool terminal, std::string title, nanoseconds duration,
           const Live* live);
  ~Progress();

 private:
  void Draw();

  std::ostream* const out_;
  const bool terminal_;
  const std::string title_;
  const nanoseconds duration_;
  const Live& live_;
  MonoTime start_{};
  std::optional<PeriodicThread> thread_;
};

}  // namespace sluice::load
