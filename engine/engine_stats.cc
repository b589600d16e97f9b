#include "engine/engine_stats.h"

namespace sluice {

std::string_view LookupName(Lookup lookup) {
  switch (lookup) {
    case Lookup::kHit:
      return "hit";
    case Lookup::kMissNotCaptured:
      return "not_captured";
    case Lookup::kMissEvicted:
      return "evicted";
    case Lookup::kMissOverCapacity:
      return "over_capacity";
    case Lookup::kMissGuard:
      return "guard";
    case Lookup::kMissMemory:
      return "memory";
  }
  return "";
}

}  // namespace sluice
