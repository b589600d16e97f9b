#include "engine/observer.h"

namespace sluice {

std::string_view TriggerName(Trigger trigger) {
  switch (trigger) {
    case Trigger::kFull:
      return "full";
    case Trigger::kDelay:
      return "delay";
    case Trigger::kIdle:
      return "idle";
    case Trigger::kDrain:
      return "drain";
  }
  return "";
}

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
  }
  return "";
}

std::string_view RejectionName(Rejection rejection) {
  switch (rejection) {
    case Rejection::kQueueFull:
      return "queue_full";
    case Rejection::kDraining:
      return "draining";
    case Rejection::kDeadline:
      return "deadline";
    case Rejection::kTooLarge:
      return "too_large";
    case Rejection::kUnknownModel:
      return "unknown_model";
  }
  return "";
}

}  // namespace sluice
