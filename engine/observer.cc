#include "engine/observer.h"

namespace sluice {

std::string_view RejectionName(Rejection rejection) {
  switch (rejection) {
    case Rejection::kQueueFull:
      return "queue_full";
    case Rejection::kDraining:
      return "draining";
    case Rejection::kHung:
      return "hung";
    case Rejection::kDeadline:
      return "deadline";
    case Rejection::kDeadlineUnreachable:
      return "deadline_unreachable";
    case Rejection::kTooLarge:
      return "too_large";
    case Rejection::kUnknownModel:
      return "unknown_model";
  }
  return "";
}

}  // namespace sluice
