// The rows of the option table; see option.h, whose Options() keeps it.
#pragma once

#include <vector>

#include "config/option.h"

namespace sluice {

std::vector<Option> BuildOptionTable();

// Those of `server`, which are its last.
std::vector<Option> ServerOptionTable();

}  // namespace sluice
