#include "engine/schedule/batch_former.h"

#include "engine/schedule/baseline_former.h"
#include "engine/schedule/cut_and_fill.h"

namespace sluice {

std::unique_ptr<BatchFormer> MakeBatchFormer(const BatchOptions& options) {
  if (options.policy == PolicyKind::kCutAndFill) return std::make_unique<CutAndFill>(options);
  return std::make_unique<BaselineFormer>(options);
}

}  // namespace sluice
