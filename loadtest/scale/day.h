// A day of traffic.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "engine/schedule/traffic.h"

namespace sluice::loadtest {

struct DayOptions {
  double hours = 24;                  // the day's shape is stretched to these
  double peak_tokens_per_second = 0;  // at the busiest hour, surges aside. > 0
  int surges = 3;                     // at random times
  double surge = 1.5;                 // times the load of the hour. >= 1
  double surge_seconds = 900;         // a minute to come, a minute to go
  int32_t cap = 8192;                 // of a sequence's tokens
};

// How much of the busiest hour's load there is at `share` of the day, in [0, 1): low at night, two
// humps.
double DayShape(double share);

// Arrivals of one step each, lengths log-normal with a median of 600 tokens, as prompts of a chat
// service; Poisson with a rate that follows the day.
std::vector<Arrival> MakeDay(const DayOptions& options, std::mt19937_64* random);

}  // namespace sluice::loadtest
