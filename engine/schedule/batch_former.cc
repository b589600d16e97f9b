#include "engine/schedule/batch_former.h"

#include "engine/schedule/baseline_former.h"
#include "engine/schedule/packed_former.h"

namespace sluice {

std::unique_ptr<BatchFormer> MakeBatchFormer(const BatchOptions& options) {
  if (options.policy == PolicyKind::kPacked) return std::make_unique<PackedFormer>(options);
  return std::make_unique<BaselineFormer>(options);
}

}  // namespace sluice
