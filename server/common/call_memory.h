// The memory limits that calls take from, and what happens where they do not suffice.
#pragma once

#include <cstdint>
#include <utility>

#include "base/memory_budget.h"
#include "server/common/overload.h"

namespace sluice {

// Thread-safe, except Overload::Look.
struct CallMemory {
  CallMemory(int64_t parsed_bytes, int64_t unread_bytes, Overload::Parts parts)
      : parsed(parsed_bytes), unread(unread_bytes), overload(std::move(parts)) {}

  MemoryBudget parsed;  // messages while they are parsed and validated
  MemoryBudget unread;  // answers until their callers have taken them
  Overload overload;
};

}  // namespace sluice
