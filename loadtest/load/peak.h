// Searches for the highest rate that meets the objective.
#pragma once

namespace sluice::load {

// Doubles the rate until a phase fails, then bisects between the highest rate that passed and the
// lowest that failed. If the first phase fails, it first halves the rate until one passes.
class PeakSearch {
 public:
  // The search ends when these two rates are within `tolerance` of each other (0.05 means 5 %), or
  // after 24 phases.
  PeakSearch(double start_rate, double tolerance) : next_(start_rate), tolerance_(tolerance) {}

  bool done() const { return done_; }
  // Returns the rate of the next phase. Requires that the search is not done.
  double next_rate() const { return next_; }
  // Reports whether the phase at next_rate() passed.
  void Report(bool passed);

  // Returns the highest rate that passed, or 0 if none did.
  double peak() const { return passed_; }

 private:
  double next_;
  const double tolerance_;
  double passed_ = 0;
  double failed_ = 0;  // 0 if none has failed yet
  int phases_ = 0;
  bool done_ = false;
};

}  // namespace sluice::load
