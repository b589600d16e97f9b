// Included before every source that tools/plant.py changes: the fault that a run has.
#pragma once

#include <cstdlib>

// Returns whether fault `number` is the one that the environment chooses.
inline bool SluicePlanted(int number) {
  static const int chosen = [] {
    const char* const text = std::getenv("SLUICE_PLANTED");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return chosen == number;
}
