#include "base/clock.h"

namespace sluice {
namespace {

class SteadyClock : public Clock {
 public:
  MonoTime Now() const override { return std::chrono::steady_clock::now(); }

  void WaitUntil(CondVar* cv, Mutex* mu, MonoTime deadline) override {
    if (deadline == MonoTime::max()) {
      cv->Wait(mu);
    } else {
      cv->WaitUntil(mu, deadline);
    }
  }
};

}  // namespace

Clock* Clock::Real() {
  static SteadyClock clock;
  return &clock;
}

}  // namespace sluice
