// The names of policies and strategies, as the configuration has them.
#pragma once

#include <string_view>

#include "engine/options.h"

namespace sluice {

constexpr std::string_view NameOf(PolicyKind policy) {
  constexpr std::string_view kNames[] = {"cut_and_fill", "fifo_packed", "padded_buckets",
                                         "static_padded"};
  return kNames[static_cast<int>(policy)];
}

constexpr std::string_view NameOf(StrategyKind strategy) {
  constexpr std::string_view kNames[] = {"fixed", "geometric", "hardware_aware", "memory_optimal",
                                         "adaptive"};
  return kNames[static_cast<int>(strategy)];
}

}  // namespace sluice
