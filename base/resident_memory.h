// The memory that the process takes from the system.
#pragma once

#include <cstdint>

namespace sluice {

// Returns the bytes that the process has in memory and that the system cannot drop: all pages
// except those that map files. Returns 0 if the system does not report them.
int64_t ResidentBytes();

}  // namespace sluice
