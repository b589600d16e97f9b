#include "engine/cpu/cpu_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "engine/cpu/cpu_adapter.h"
#include "engine/cpu/cpu_op.h"
#include "engine/cpu/cpu_slot.h"
#include "engine/cpu/layout.h"
#include "engine/cpu/op_times.h"

namespace sluice {
namespace {

constexpr int32_t kMaxBucketTokens = 1 << 20;
constexpr int32_t kMaxBucketSequences = 1 << 16;

class CpuPlan final : public Plan {
 public:
  CpuPlan(const CpuModel* model, const Bucket& bucket, int64_t vocab_size, ArenaLayout layout)
      : model_(model), bucket_(bucket), vocab_size_(vocab_size), layout_(std::move(layout)) {}

  const Bucket& bucket() const override { return bucket_; }
  int64_t memory_bytes() const override {
    return sizeof(*this) + layout_.buffers.capacity() * sizeof(int64_t);
  }
  bool Accepts(const StepNeeds& needs) const override { return needs.num_top <= vocab_size_; }
  const CpuModel* model() const { return model_; }
  const ArenaLayout& layout() const { return layout_; }

 private:
  const CpuModel* model_;
  Bucket bucket_;
  int64_t vocab_size_;
  ArenaLayout layout_;
};

absl::Status CheckBucket(const Bucket& bucket) {
  if (bucket.tokens >= 1 && bucket.tokens <= kMaxBucketTokens && bucket.sequences >= 1 &&
      bucket.sequences <= kMaxBucketSequences) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "bucket of ", bucket.tokens, " tokens and ", bucket.sequences, " sequences, must be in [1, ",
      kMaxBucketTokens, "] and [1, ", kMaxBucketSequences, "]"));
}

}  // namespace

std::string ServedProfile(const Model& model, kernels::Profile profile) {
  if (kernels::MultipliesInBf16(profile) && !MultipliesBf16Weights(model)) {
    profile = kernels::Profile::kAvx512F32;  // the same kernels, and bits
  }
  return absl::StrCat(std::string(kernels::ProfileName(profile)), QuantizationSuffix(model),
                      KvSuffix(model.config.kv_dtype));
}

CpuModel::CpuModel(std::shared_ptr<const Model> model, const kernels::Context& context,
                   LoweredModel lowered, SelectedAttention attention, bool poison)
    : model_(std::move(model)),
      context_(context),
      lowered_(std::move(lowered)),
      attention_(std::move(attention)),
      poison_(poison) {}

std::string CpuModel::algorithms() const {
  return absl::StrCat("attention ", AttentionVariantName(attention_.variant));
}

std::string CpuModel::profile() const { return ServedProfile(*model_, context_.profile); }

RowOrder CpuModel::row_order() const {
  return model_->config.position_wise.Any() ? RowOrder::kPositionMajor : RowOrder::kSequenceMajor;
}

void CpuModel::ParallelFor(int64_t n, int64_t grain,
                           absl::FunctionRef<void(int64_t begin, int64_t end)> body) const {
  context_.pool->ParallelFor(n, grain,
                             [body](int64_t begin, int64_t end, int) { body(begin, end); });
}

absl::StatusOr<std::unique_ptr<Plan>> CpuModel::Prepare(const Bucket& bucket) const {
  SLUICE_RETURN_IF_ERROR(CheckBucket(bucket));
  return std::make_unique<CpuPlan>(this, bucket, model_->config.vocab_size, LayOut(bucket));
}

absl::StatusOr<std::unique_ptr<const LoadedAdapter>> CpuModel::LoadAdapter(
    const Adapter& adapter) const {
  // A load runs next to steps, so it does not use their threads.
  kernels::ThreadPool own(1);
  return CpuAdapter::Pack(*model_, adapter, {context_.profile, &own});
}

absl::StatusOr<int64_t> CpuModel::AdapterBytes(const Adapter& adapter) const {
  return CpuAdapter::MostBytes(*model_, adapter, context_);
}

absl::StatusOr<StepDescription> CpuModel::DescribeStep(const StepSizes& step, bool profile) const {
  StepDescription description = {.model = model_, .step = {}};
  SLUICE_ASSIGN_OR_RETURN(description.step, CompleteStep(model_->config, step));
  description.attention = attention_.variant;
  description.attention_reason = attention_.reason;
  description.profile = this->profile();
  description.weight_bytes = WeightBytes(*model_);
  if (profile) {
    SLUICE_ASSIGN_OR_RETURN(description.seconds, TimeOps(*this, *model_, description.step));
  }
  return description;
}

ArenaLayout CpuModel::LayOut(const Bucket& bucket) const {
  return LayOutArena(*model_, bucket, context_, KernelOrder(attention_.variant));
}

int64_t CpuModel::page_bytes() const { return CpuSlot::PageBytes(model_->config); }

int64_t CpuModel::activation_bytes(const Bucket& largest) const {
  return LayOut(largest).floats * kSizeOf<float>;
}

absl::StatusOr<std::unique_ptr<Slot>> CpuModel::CreateSlot(const Bucket& largest,
                                                           int32_t pages) const {
  SLUICE_RETURN_IF_ERROR(CheckBucket(largest));
  const ArenaLayout layout = LayOut(largest);
  return CpuSlot::Create(model_->config, largest, pages, layout.floats);
}

void CpuModel::Start(const Plan& plan, Slot& slot, const StepBatch& batch) const {
  const auto& cpu_plan = static_cast<const CpuPlan&>(plan);
  auto& cpu_slot = static_cast<CpuSlot&>(slot);
  const Bucket& bucket = plan.bucket();
  SLUICE_CHECK(cpu_plan.model() == this);
  SLUICE_CHECK(bucket.tokens <= cpu_slot.largest().tokens);
  const Bucket capacity = StepCapacity(bucket, model_->config.causal);
  SLUICE_CHECK(capacity.sequences <= cpu_slot.largest().sequences);
  SLUICE_CHECK(capacity.Fits(batch.size()));
  SLUICE_CHECK(!bucket.padded() || batch.tokens() == bucket.tokens);
  SLUICE_CHECK(batch.max_context() <= model_->config.max_positions);
  cpu_slot.Bind(&plan, cpu_plan.layout().floats, batch);
}

StepRun CpuModel::Begin(Slot& slot) const {
  auto& cpu_slot = static_cast<CpuSlot&>(slot);
  if (poison_) cpu_slot.Poison();
  cpu_slot.CopyPages(context_.pool);
  return {context_, cpu_slot.batch(), static_cast<const CpuPlan&>(cpu_slot.plan()).layout(),
          cpu_slot};
}

absl::Status CpuModel::Finish(Slot& slot) const {
  const StepRun run = Begin(slot);
  for (const CpuOp& op : lowered_.ops) op(run);
  return absl::OkStatus();
}

absl::Status CpuModel::Trace(const Plan& plan, Slot& slot, const StepBatch& batch,
                             const Observe& observe) const {
  Start(plan, slot, batch);
  const StepRun run = Begin(slot);
  for (size_t i = 0; i < lowered_.ops.size(); ++i) {
    lowered_.ops[i](run);
    if (i < model_->graph.ops.size()) observe(i, run);
  }
  return absl::OkStatus();
}

}  // namespace sluice
