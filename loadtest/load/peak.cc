#include "loadtest/load/peak.h"

namespace sluice::load {
namespace {

constexpr int kMaxPhases = 24;

}  // namespace

void PeakSearch::Report(bool passed) {
  (passed ? passed_ : failed_) = next_;
  ++phases_;
  const bool bracketed = passed_ > 0 && failed_ > 0;
  done_ = phases_ >= kMaxPhases || (bracketed && failed_ <= passed_ * (1 + tolerance_));
  if (bracketed) {
    next_ = (passed_ + failed_) / 2;
  } else {
    next_ = passed ? next_ * 2 : next_ / 2;
  }
}

}  // namespace sluice::load
