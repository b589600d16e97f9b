#include "tests/support/gate.h"

namespace sluice {

void Gate::Pass() {
  MutexLock lock(&mu_);
  ++arrivals_;
  changed_.SignalAll();
  while (!open_) changed_.Wait(&mu_);
}

void Gate::Open() {
  MutexLock lock(&mu_);
  open_ = true;
  changed_.SignalAll();
}

void Gate::AwaitArrivals(int count) {
  MutexLock lock(&mu_);
  while (arrivals_ < count) changed_.Wait(&mu_);
}

}  // namespace sluice
