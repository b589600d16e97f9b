// A gate that blocks the threads of a test.
#pragma once

#include "base/mutex.h"

namespace sluice {

// Thread-safe. Initially closed.
class Gate {
 public:
  // Blocks while the gate is closed.
  void Pass();
  void Open();
  // Returns once Pass has been called `count` times since construction.
  void AwaitArrivals(int count);

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
  int arrivals_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace sluice
