// A model on a CUDA device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/backend.h"
#include "engine/cuda/cuda_adapter.h"
#include "engine/cuda/cuda_slot.h"
#include "engine/cuda/dense_layers.h"
#include "engine/cuda/device.h"
#include "engine/cuda/device_weights.h"
#include "engine/cuda/lower_cuda.h"
#include "engine/cuda/selected_kernels.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice {

// A plan holds one captured graph for each slot that exists when it is prepared. In a slot that is
// made later, and in every slot if the plan is eager, steps launch the kernels one by one.
template <typename T>
class CudaModel final : public ExecutableModel {
 public:
  struct Options {
    bool poison = false;
    // The name of the library that computes dense layers, see DenseLayers; empty if none does.
    std::string library = "";
    std::string missing_library = "";  // the reason if a requested library is missing
    // The table of the library's algorithms; nullptr if there is none for this device. It outlives
    // the model.
    const AlgorithmTable* table = nullptr;
    // If true, this project's kernels must pass a check, see SelectedKernels. If false, the
    // portable kernels serve without one.
    bool tried_kernels = false;
    // The threads that share the host's work. It outlives the model.
    kernels::ThreadPool* pool = nullptr;
    std::string profile = "";  // of the backend
  };
  // The device is not owned. Returns InvalidArgument that names a missing or misshapen tensor.
  static absl::StatusOr<std::unique_ptr<ExecutableModel>> Load(std::shared_ptr<const Model> model,
                                                               Device& device,
                                                               const Options& options);

  int64_t weight_bytes() const override { return weights_->bytes(); }
  std::vector<std::string> notices() const override { return notices_; }
  std::string profile() const override { return profile_ + QuantizationSuffix(*model_); }
  std::string algorithms() const override;
  std::string kernels() const override;
  std::vector<std::string> dense_algorithms() const override {
    return dense_ == nullptr ? std::vector<std::string>() : dense_->Describe();
  }
  absl::StatusOr<std::unique_ptr<const LoadedAdapter>> LoadAdapter(
      const Adapter& adapter) const override {
    return CudaAdapter::Pack<T>(*model_, lowered_.graph, adapter, device_);
  }
  absl::StatusOr<int64_t> AdapterBytes(const Adapter& adapter) const override {
    return CudaAdapter::BytesOf<T>(*model_, lowered_.graph, adapter);
  }
  RowOrder row_order() const override;
  ComputedRows computed_rows() const override { return lowered_.computed_rows; }
  void ParallelFor(int64_t n, int64_t grain,
                   absl::FunctionRef<void(int64_t begin, int64_t end)> body) const override;
  absl::StatusOr<std::unique_ptr<Plan>> Prepare(const Bucket& bucket) const override;
  absl::StatusOr<std::unique_ptr<Plan>> Eager(const Bucket& bucket) const override;
  int64_t page_bytes() const override { return CudaSlot<T>::PageBytes(model_->config); }
  int64_t activation_bytes(const Bucket& largest) const override;
  absl::StatusOr<std::unique_ptr<Slot>> CreateSlot(const Bucket& largest,
                                                   int32_t pages) const override;
  void Start(const Plan& plan, Slot& slot, const StepBatch& batch) const override;
  absl::Status Finish(Slot& slot) const override;

 private:
  CudaModel(std::shared_ptr<const Model> model, Device& device, const Options& options)
      : model_(std::move(model)),
        device_(device),
        pool_(*options.pool),
        poison_(options.poison),
        profile_(options.profile) {}

  std::shared_ptr<const Model> model_;
  Device& device_;
  kernels::ThreadPool& pool_;
  bool poison_;
  std::string profile_;
  // Its mutex guards the capture stream too.
  std::shared_ptr<SlotRegistry<T>> registry_ = std::make_shared<SlotRegistry<T>>();
  std::unique_ptr<DeviceStream> capture_;
  std::unique_ptr<DeviceWeights> weights_;
  std::unique_ptr<DenseLayers> dense_;  // nullptr if our kernel computes all of them
  std::unique_ptr<SelectedKernels<T>>
      kernels_;  // nullptr if the portable ones serve without a trial
  LoweredCudaModel<T> lowered_;
  std::string library_;
  std::vector<std::string> notices_;
};

}  // namespace sluice
