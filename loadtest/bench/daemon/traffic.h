// The traffic that all arms share.
#pragma once

#include <cstdint>
#include <vector>

#include "loadtest/load/arrivals.h"

namespace sluice::loadtest {

// The name of the only model of each arm.
inline constexpr char kModel[] = "model";

// One phase, the same for every arm that runs it.
struct Traffic {
  int outstanding = 0;  // of a closed loop; 0 for an open loop
  double rate = 0;      // Poisson arrivals per second of an open loop
  load::nanoseconds duration{0};
  std::vector<load::Arrival> arrivals;
  std::vector<uint32_t> payloads;  // the index of each arrival into the workload's pool
};

}  // namespace sluice::loadtest
