#include "engine/cuda/dense_layers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "engine/cuda/dense_check.h"
#include "engine/cuda/int8_check.h"

namespace sluice {
namespace {

using LayerList = std::vector<std::unique_ptr<DenseLayer>>;

// Calls run(slice, first) for the slices of args.rows rows. Each slice begins with row `first` of
// x.
template <typename Function>
void ForEachSlice(const DenseShape& shape, const DenseArgs& args, Function run) {
  const int32_t most = MaxRows(shape);
  for (int32_t first = 0; first < args.rows; first += most) {
    DenseArgs slice = args;
    slice.x = static_cast<const char*>(args.x) + first * (shape.k * shape.operand_bytes());
    slice.rows = TriedRows(shape, std::min(args.rows - first, most));
    run(slice, first);
  }
}

}  // namespace

absl::StatusOr<LayerList> DenseLayers::Passing(const DenseShape& shape, const void* weight,
                                               const void* bias, size_t most) {
  LayerList candidates = device_.DenseCandidates(shape);
  const DenseLayer* const of_table = PreferTable(shape, &candidates);
  if (candidates.empty()) return LayerList();
  if (shape.int8()) {
    return Try(Int8Check(shape, static_cast<const int8_t*>(weight)), shape, std::move(candidates),
               of_table, most);
  }
  return Try(DenseCheck(shape, weight, bias), shape, std::move(candidates), of_table, most);
}

template <typename Check>
absl::StatusOr<LayerList> DenseLayers::Try(Check check, const DenseShape& shape,
                                           LayerList candidates, const DenseLayer* of_table,
                                           size_t most) {
  size_t workspace = 0;
  for (const auto& layer : candidates) workspace = std::max(workspace, layer->workspace_bytes());
  SLUICE_RETURN_IF_ERROR(check.Prepare(device_, stream_, workspace));
  LayerList passing;
  for (std::unique_ptr<DenseLayer>& layer : candidates) {
    if (passing.size() == most) break;
    const absl::Status status = check.Check(*layer, stream_);
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
    Refuse(shape, absl::NotFoundError("its algorithm is not among the library's candidates"));
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
  ForEachSlice(shape, args, [&](DenseArgs slice, int64_t first) {
    slice.out = static_cast<char*>(args.out) + first * (shape.n * shape.out_bytes());
    layer.Run(slice, stream);
  });
}

template <typename T>
void RunInt8InSlices(const DenseLayer& layer, const DenseShape& shape, const DenseArgs& args,
                     kernels::cuda::ScaleSumsArgs<T> scaled, DeviceStream& stream) {
  scaled.sums = static_cast<const int32_t*>(args.out);
  ForEachSlice(shape, args, [&](const DenseArgs& slice, int32_t first) {
    layer.Run(slice, stream);
    scaled.first = first;
    scaled.rows.capacity = std::min(args.rows - first, MaxRows(shape));
    kernels::cuda::ScaleSums(stream, scaled);
  });
}

template void RunInt8InSlices(const DenseLayer&, const DenseShape&, const DenseArgs&,
                              kernels::cuda::ScaleSumsArgs<float>, DeviceStream&);
template void RunInt8InSlices(const DenseLayer&, const DenseShape&, const DenseArgs&,
                              kernels::cuda::ScaleSumsArgs<kernels::cuda::BFloat16>, DeviceStream&);

}  // namespace sluice
