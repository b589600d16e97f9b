#include "engine/cuda/cuda_model.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/stable_hash.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

constexpr int32_t kMaxBucketTokens = 1 << 20;
constexpr int32_t kMaxBucketSequences = 1 << 16;

class CudaPlan final : public Plan {
 public:
  CudaPlan(const ExecutableModel* model, const Bucket& bucket, int64_t vocab_size,
           StepLayout layout, bool eager)
      : model_(model),
        bucket_(bucket),
        vocab_size_(vocab_size),
        layout_(std::move(layout)),
        eager_(eager) {}

  const Bucket& bucket() const override { return bucket_; }
  int64_t memory_bytes() const override {
    int64_t bytes = sizeof(*this) + layout_.buffers.capacity() * sizeof(int64_t);
    for (const auto& [slot, graph] : graphs_) bytes += graph->memory_bytes();
    return bytes;
  }
  bool Accepts(const StepNeeds& needs) const override { return needs.num_top <= vocab_size_; }
  bool Captures(const StepNeeds& needs) const override {
    return needs.num_top <= CudaHead<float>::kFewTop;
  }
  bool eager() const override { return eager_; }

  const ExecutableModel* model() const { return model_; }
  const StepLayout& layout() const { return layout_; }
  void Add(int64_t slot, std::unique_ptr<DeviceGraph> graph) { graphs_[slot] = std::move(graph); }
  // Returns nullptr for a slot that was made after the plan.
  DeviceGraph* GraphOf(int64_t slot) const {
    const auto found = graphs_.find(slot);
    return found == graphs_.end() ? nullptr : found->second.get();
  }

 private:
  const ExecutableModel* model_;
  Bucket bucket_;
  int64_t vocab_size_;
  StepLayout layout_;
  bool eager_;
  std::map<int64_t, std::unique_ptr<DeviceGraph>> graphs_;  // by slot
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

template <typename T>
absl::StatusOr<std::unique_ptr<ExecutableModel>> CudaModel<T>::Load(
    std::shared_ptr<const Model> model, Device& device, const Options& options) {
  std::unique_ptr<CudaModel> loaded(new CudaModel(std::move(model), device, options));
  SLUICE_ASSIGN_OR_RETURN(loaded->capture_, device.CreateStream());
  loaded->weights_ = std::make_unique<DeviceWeights>(device, *loaded->capture_);
  const bool library = !options.library.empty();
  if (library) {
    loaded->library_ = options.library;
    loaded->dense_ = std::make_unique<DenseLayers>(device, *loaded->capture_, options.table);
  }
  if (options.tried_kernels) {
    loaded->kernels_ =
        std::make_unique<SelectedKernels<T>>(device, *loaded->capture_, AllCandidates<T>());
  }
  SLUICE_ASSIGN_OR_RETURN(loaded->lowered_,
                          LowerToCuda<T>(*loaded->model_, *loaded->weights_, loaded->dense_.get(),
                                         loaded->kernels_.get()));
  if (library) loaded->notices_ = loaded->dense_->notices();
  if (!options.missing_library.empty()) {
    loaded->notices_.push_back(absl::StrCat(
        "no vendor library computes the dense layers, which is slower: ", options.missing_library));
  }
  if (library && options.table == nullptr) {
    loaded->notices_.push_back(absl::StrCat(
        "there is no table of algorithms for ", device.info().name,
        " and this library; the library's own order decides. gpu_bench tune writes a table"));
  }
  if (options.tried_kernels) {
    const std::vector<std::string>& refused = loaded->kernels_->notices();
    loaded->notices_.insert(loaded->notices_.end(), refused.begin(), refused.end());
  }
  return loaded;
}

template <typename T>
std::string CudaModel<T>::algorithms() const {
  const std::string dense =
      dense_ == nullptr ? "" : dense_->InUse(device_.info().name, library_).Digest();
  if (kernels_ == nullptr) return dense;
  StableHash hash;
  hash.Add(dense);
  hash.Add(kernels_->Fingerprint());
  return absl::StrCat(absl::Hex(hash.value(), absl::kZeroPad16));
}

template <typename T>
std::string CudaModel<T>::kernels() const {
  return kernels_ == nullptr ? "portable" : kernels_->InUse();
}

template <typename T>
RowOrder CudaModel<T>::row_order() const {
  return model_->config.position_wise.Any() ? RowOrder::kPositionMajor : RowOrder::kSequenceMajor;
}

template <typename T>
void CudaModel<T>::ParallelFor(int64_t n, int64_t grain,
                               absl::FunctionRef<void(int64_t begin, int64_t end)> body) const {
  pool_.ParallelFor(n, grain, [body](int64_t begin, int64_t end, int) { body(begin, end); });
}

template <typename T>
absl::StatusOr<std::unique_ptr<Plan>> CudaModel<T>::Prepare(const Bucket& bucket) const {
  SLUICE_RETURN_IF_ERROR(CheckBucket(bucket));
  auto plan = std::make_unique<CudaPlan>(this, bucket, model_->config.vocab_size,
                                         lowered_.LayOut(*model_, bucket), /*eager=*/false);
  const MutexLock lock(&registry_->mutex);
  for (const CudaSlot<T>* slot : registry_->slots) {
    if (!slot->Holds(bucket)) continue;
    capture_->BeginCapture();
    lowered_.Launch(slot->Place(plan->layout(), plan->bucket()), *capture_);
    SLUICE_ASSIGN_OR_RETURN(auto graph, capture_->EndCapture());
    plan->Add(slot->id(), std::move(graph));
  }
  return plan;
}

template <typename T>
absl::StatusOr<std::unique_ptr<Plan>> CudaModel<T>::Eager(const Bucket& bucket) const {
  SLUICE_RETURN_IF_ERROR(CheckBucket(bucket));
  return std::make_unique<CudaPlan>(this, bucket, model_->config.vocab_size,
                                    lowered_.LayOut(*model_, bucket), /*eager=*/true);
}

template <typename T>
int64_t CudaModel<T>::activation_bytes(const Bucket& largest) const {
  return CudaSlot<T>::ActivationBytes(*model_, lowered_, largest);
}

template <typename T>
absl::StatusOr<std::unique_ptr<Slot>> CudaModel<T>::CreateSlot(const Bucket& largest,
                                                               int32_t pages) const {
  SLUICE_RETURN_IF_ERROR(CheckBucket(largest));
  return CudaSlot<T>::Create({.model = *model_,
                              .lowered = lowered_,
                              .device = device_,
                              .capture = *capture_,
                              .poison = poison_},
                             largest, pages, registry_);
}

template <typename T>
void CudaModel<T>::Start(const Plan& plan, Slot& slot, const StepBatch& batch) const {
  const auto& cuda_plan = static_cast<const CudaPlan&>(plan);
  auto& cuda_slot = static_cast<CudaSlot<T>&>(slot);
  const Bucket& bucket = plan.bucket();
  SLUICE_CHECK(cuda_plan.model() == this);
  SLUICE_CHECK(cuda_slot.Holds(bucket));
  SLUICE_CHECK(StepCapacity(bucket, model_->config.causal).Fits(batch.size()));
  SLUICE_CHECK(!bucket.padded() || batch.tokens() == bucket.tokens);
  SLUICE_CHECK(batch.max_context() <= model_->config.max_positions);
  cuda_slot.Start({.batch = &batch,
                   .layout = &cuda_plan.layout(),
                   .bucket = &bucket,
                   .graph = cuda_plan.GraphOf(cuda_slot.id())});
}

template <typename T>
absl::Status CudaModel<T>::Finish(Slot& slot) const {
  return static_cast<CudaSlot<T>&>(slot).Finish();
}

template class CudaModel<float>;
template class CudaModel<kernels::cuda::BFloat16>;

}  // namespace sluice
