#include "engine/schedule/batch_former.h"

#include "base/check.h"
#include "engine/schedule/baseline_former.h"
#include "engine/schedule/cut_and_fill.h"

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

std::unique_ptr<BatchFormer> MakeBatchFormer(const BatchOptions& options) {
  if (options.policy == PolicyKind::kCutAndFill) return std::make_unique<CutAndFill>(options);
  return std::make_unique<BaselineFormer>(options);
}

}  // namespace sluice
