// Makes a day of traffic.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "engine/schedule/traffic.h"

namespace sluice::loadtest {

struct DayOptions {
  double hours = 24;                  // the length of the day; its shape is stretched to it
  double peak_tokens_per_second = 0;  // in the busiest hour, without surges; above 0
  int surges = 3;                     // the number of surges, at random times
  double surge = 1.5;                 // the factor on the load of the hour, at least 1
  double surge_seconds = 900;         // includes a minute of rise and a minute of fall
  int32_t cap = 8192;                 // of a sequence's tokens
};

// Returns the load at `share` of the day, in [0, 1), relative to the busiest hour. It is low at
// night and has two humps.
double DayShape(double share);

// Returns arrivals of one step each. Their lengths are log-normal with a median of 600 tokens, like
// the prompts of a chat service; the process is Poisson with a rate that follows the day.
std::vector<Arrival> MakeDay(const DayOptions& options, std::mt19937_64* random);

}  // namespace sluice::loadtest
