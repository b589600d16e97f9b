#include "engine/schedule_values.h"

#include "base/check.h"

namespace sluice {

std::string_view TriggerName(Trigger trigger) {
  switch (trigger) {
    case Trigger::kFull:
      return "full";
    case Trigger::kDelay:
      return "delay";
    case Trigger::kDeadline:
      return "deadline";
    case Trigger::kIdle:
      return "idle";
    case Trigger::kDrain:
      return "drain";
  }
  SLUICE_CHECK(false && "unknown trigger");
}

std::string_view WaitReasonName(WaitReason reason) {
  switch (reason) {
    case WaitReason::kEmpty:
      return "empty";
    case WaitReason::kCompany:
      return "company";
  }
  SLUICE_CHECK(false && "unknown wait reason");
}

}  // namespace sluice
