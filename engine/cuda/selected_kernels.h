// The kernels of this project that serve a model.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cuda/device.h"
#include "engine/cuda/kernel_candidates.h"

namespace sluice {

// Selects, for each shape, the fastest candidate that supports it and passes its trial
// (row_check.h) on this device with the model's weights. Passing candidates are timed with 1, 64
// and 1,024 rows; the geometric mean decides. A candidate must be clearly faster than the ones
// before it in the list. Tuned kernels are never used without this trial.
template <typename T>
class SelectedKernels {
 public:
  // The arguments are not owned; `stream` is used during the calls only.
  SelectedKernels(Device& device, DeviceStream& stream, KernelCandidates<T> candidates)
      : device_(device), stream_(stream), candidates_(std::move(candidates)) {}

  // Return a candidate that lives as long as this. If none passes, the GPU cannot serve the model,
  // and the error states the reason for each candidate; other errors come from the device.
  // `tensors`, `weight` [matrices, k, n], `bias` and `gate` belong to a layer of the shape.
  absl::StatusOr<const AttentionCandidate<T>*> Attention(const AttentionShape& shape,
                                                         const AttentionTensors& tensors);
  absl::StatusOr<const GroupedProductCandidate<T>*> Product(const GroupedProductShape& shape,
                                                            const T* weight, const T* bias,
                                                            const GateWeights<T>& gate = {});

  // Returns the tiers that serve, such as "attention portable; products hopper, portable"; empty if
  // no kernel was requested.
  std::string InUse() const;
  // Returns a text that identifies this choice: the tier of each shape.
  std::string Fingerprint() const;
  // Returns a sentence for each candidate that was refused.
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  template <typename Shape, typename Candidate, typename Check>
  absl::StatusOr<const Candidate*> Choose(const Shape& shape,
                                          const std::vector<Candidate>& candidates, Check check,
                                          std::map<Shape, const Candidate*>* chosen);
  template <typename Candidate, typename Check>
  absl::StatusOr<const Candidate*> Fastest(const std::vector<const Candidate*>& passing,
                                           Check& check);

  Device& device_;
  DeviceStream& stream_;
  const KernelCandidates<T> candidates_;
  std::map<AttentionShape, const AttentionCandidate<T>*> attention_;
  std::map<GroupedProductShape, const GroupedProductCandidate<T>*> products_;
  std::vector<std::string> notices_;
};

}  // namespace sluice
