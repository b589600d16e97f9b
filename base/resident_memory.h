// The memory that the process takes from the system.
#pragma once

#include <cstdint>

namespace sluice {

// Returns the bytes that the process has in memory and that the system cannot drop: all but the
// pages of mapped files. Returns 0 if the system does not tell.
int64_t ResidentBytes();

}  // namespace sluice
