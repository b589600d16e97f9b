#include "engine/cuda/dense_layers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
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
    if (absl::IsUnavailable(status) || absl::IsResourceExhausted(status)) return status;
    if (status.ok()) {
      passing.push_back(std::move(layer));
    } else if (layer.get() == of_table) {
      Refuse(shape, status);
    } else if (!absl::IsFailedPrecondition(status)) {
      notices_.push_back(absl::StrCat("an algorithm for ", ToString(shape),
                                      " is not used: ", layer->Describe(), ": ", status.message()));
    }
  }
  if (passing.empty()) {
    notices_.push_back(absl::StrCat("our kernel computes ", ToString(shape),
                                    ", because none of the library's algorithms passes its trial"));
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

AlgorithmTable DenseLayers::InUse(const std::string& gpu, const std::string& library) const {
  AlgorithmTable table(gpu, library);
  for (const auto& [shape, layer] : layers_) {
    if (layer != nullptr) SLUICE_CHECK(table.Add(shape, layer->algorithm(), "").ok());
  }
  return table;
}

void DenseLayers::Refuse(const DenseShape& shape, const absl::Status& why) {
  notices_.push_back(absl::StrCat("the table of algorithms is not followed for ", ToString(shape),
                                  ": ", why.message()));
}

void RunInSlices(const DenseLayer& layer, const DenseShape& shape, const DenseArgs& args,
                 DeviceStream& stream) {
  const int64_t x_row = int64_t{shape.k} * (shape.half ? 2 : 4);
  const int64_t out_row = int64_t{shape.n} * (shape.half_out() ? 2 : 4);
  for (int32_t first = 0; first < args.rows; first += kMostDenseRows) {
    DenseArgs slice = args;
    slice.x = static_cast<const char*>(args.x) + first * x_row;
    slice.out = static_cast<char*>(args.out) + first * out_row;
    slice.rows = TriedRows(std::min(args.rows - first, kMostDenseRows));
    layer.Run(slice, stream);
  }
}

}  // namespace sluice
