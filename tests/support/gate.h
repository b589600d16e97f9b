// A gate that holds threads of a test.
#pragma once

#include "base/mutex.h"

namespace sluice {

// Thread-safe. The gate is closed at first.
class Gate {
 public:
  // Blocks while the gate is closed.
  void Pass();
  void Open();
  // Returns once `count` calls of Pass have begun since construction.
  void AwaitArrivals(int count);

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
  int arrivals_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace sluice
