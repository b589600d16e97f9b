// What arms have in common.
#pragma once

#include <cstdint>
#include <vector>

#include "loadtest/load/arrivals.h"

namespace sluice::loadtest {

// The name that each arm serves its one model by.
inline constexpr char kModel[] = "model";

// One phase: the same for every arm that runs it.
struct Traffic {
  int outstanding = 0;  // closed loop; 0: open loop
  double rate = 0;      // open loop: Poisson arrivals per second
  load::nanoseconds duration{0};
  std::vector<load::Arrival> arrivals;
  std::vector<uint32_t> payloads;  // of each arrival, into the pool of its workload
};

}  // namespace sluice::loadtest
