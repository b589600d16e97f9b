// A model on the CPU.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "engine/backend.h"
#include "engine/cpu/lower.h"
#include "engine/cpu/select_attention.h"
#include "kernels/cpu/context.h"

namespace sluice {

// Returns the numerics profile of a model on a backend with this profile: f32 if no weights are
// multiplied in bf16, with suffixes for quantised weights and for KV pages.
std::string ServedProfile(const Model& model, kernels::Profile profile);

// Computes exactly the rows of a step batch. A plan therefore holds only offsets: all plans share
// one set of packed weights, and any slot's arena serves any plan.
class CpuModel final : public ExecutableModel {
 public:
  CpuModel(std::shared_ptr<const Model> model, const kernels::Context& context,
           LoweredModel lowered, SelectedAttention attention, bool poison);

  int64_t weight_bytes() const override { return lowered_.weight_bytes; }
  std::string algorithms() const override;
  std::string profile() const override;
  std::optional<sluice::kernels::Profile> host_profile() const override { return context_.profile; }
  AttentionVariant attention() const override { return attention_.variant; }
  absl::StatusOr<std::unique_ptr<const LoadedAdapter>> LoadAdapter(
      const Adapter& adapter) const override;
  absl::StatusOr<int64_t> AdapterBytes(const Adapter& adapter) const override;
  absl::StatusOr<StepDescription> DescribeStep(const StepSizes& step, bool profile) const override;
  RowOrder row_order() const override;
  void ParallelFor(int64_t n, int64_t grain,
                   absl::FunctionRef<void(int64_t begin, int64_t end)> body) const override;
  absl::StatusOr<std::unique_ptr<Plan>> Prepare(const Bucket& bucket) const override;
  int64_t page_bytes() const override;
  int64_t activation_bytes(const Bucket& largest) const override;
  absl::StatusOr<std::unique_ptr<Slot>> CreateSlot(const Bucket& largest,
                                                   int32_t pages) const override;
  // The host is the device: Start only binds the batch, and Finish computes.
  void Start(const Plan& plan, Slot& slot, const StepBatch& batch) const override;
  absl::Status Finish(Slot& slot) const override;

  // Replays, and calls `observe` after each op of the model's graph, when the result of the op is
  // in its buffers.
  using Observe = std::function<void(size_t op, const StepRun& run)>;
  absl::Status Trace(const Plan& plan, Slot& slot, const StepBatch& batch,
                     const Observe& observe) const;

 private:
  ArenaLayout LayOut(const Bucket& bucket) const;
  StepRun Begin(Slot& slot) const;

  std::shared_ptr<const Model> model_;
  kernels::Context context_;
  LoweredModel lowered_;
  SelectedAttention attention_;
  bool poison_;
};

}  // namespace sluice
