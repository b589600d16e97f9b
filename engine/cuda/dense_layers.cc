#include "engine/cuda/dense_layers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/cuda/dense_trial.h"

namespace sluice {

absl::StatusOr<std::vector<std::unique_ptr<DenseLayer>>> DenseLayers::Passing(
    const DenseShape& shape, const void* weight, const void* bias, size_t most) {
  std::vector<std::unique_ptr<DenseLayer>> candidates = device_.DenseCandidates(shape);
  const DenseLayer* const of_table = PreferTable(shape, &candidates);
  std::vector<std::unique_ptr<DenseLayer>> passing;
  if (candidates.empty()) return passing;
  size_t workspace = 0;
  for (const auto& layer : candidates) workspace = std::max(workspace, layer->workspace_bytes());

  DenseTrial trial(shape, weight, bias);
  SLUICE_RETURN_IF_ERROR(trial.Prepare(device_, stream_, workspace));
  for (std::unique_ptr<DenseLayer>& layer : candidates) {
    if (passing.size() == most) break;
    const absl::Status status = trial.Check(*layer, stream_);
    if (absl::IsUnavailable(status)) return status;
    if (status.ok()) {
      passing.push_back(std::move(layer));
    } else if (layer.get() == of_table) {
      Refuse(shape, status);
    }
  }
  return passing;
}

absl::StatusOr<const DenseLayer*> DenseLayers::Find(const DenseShape& shape, const void* weight,
                                                    const void* bias) {
  if (const auto found = layers_.find(shape); found != layers_.end()) return found->second.get();
  SLUICE_ASSIGN_OR_RETURN(auto passing, Passing(shape, weight, bias, /*most=*/1));
  std::unique_ptr<DenseLayer>& layer = layers_[shape];
  if (!passing.empty()) layer = std::move(passing.front());
  return layer.get();
}

const DenseLayer* DenseLayers::PreferTable(const DenseShape& shape,
                                           std::vector<std::unique_ptr<DenseLayer>>* candidates) {
  const DenseAlgorithm* const algorithm = table_ == nullptr ? nullptr : table_->Find(shape);
  if (algorithm == nullptr) return nullptr;
  const auto named = std::find_if(candidates->begin(), candidates->end(), [&](const auto& layer) {
    return layer->algorithm() == *algorithm;
  });
  if (named == candidates->end()) {
    Refuse(shape, absl::NotFoundError("its algorithm is none of the library's candidates"));
    return nullptr;
  }
  std::rotate(candidates->begin(), named, named + 1);
  return candidates->front().get();
}

void DenseLayers::Refuse(const DenseShape& shape, const absl::Status& why) {
  notices_.push_back(absl::StrCat("the table of algorithms is not followed for ", ToString(shape),
                                  ": ", why.message()));
}

}  // namespace sluice
