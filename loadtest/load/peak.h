// The search for the highest rate at which the objective is met.
#pragma once

namespace sluice::load {

// Doubles the rate from a start until a phase fails, then bisects between the highest rate that
// passed and the lowest that failed. Where the first phase fails it halves instead until one
// passes.
class PeakSearch {
 public:
  // Ends when the two are within `tolerance` (0.05: 5 %) of each other, or after 24 phases.
  PeakSearch(double start_rate, double tolerance) : next_(start_rate), tolerance_(tolerance) {}

  bool done() const { return done_; }
  // While not done: the rate of the next phase.
  double next_rate() const { return next_; }
  // What came of next_rate().
  void Report(bool passed);

  // The highest rate that passed; 0 when none did.
  double peak() const { return passed_; }

 private:
  double next_;
  const double tolerance_;
  double passed_ = 0;
  double failed_ = 0;  // 0: none yet
  int phases_ = 0;
  bool done_ = false;
};

}  // namespace sluice::load
