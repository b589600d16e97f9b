#include "engine/cuda/cuda_backend.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/cuda/cuda_model.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/row_tiles.h"

namespace sluice {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<Device> device, const CudaBackendOptions& options)
      : device_(std::move(device)), half_(options.dtype == "bf16"), poison_(options.poison) {
    info_.device = options.device;
    info_.profile = absl::StrCat("cuda-", device_->info().architecture, "-", options.dtype);
    info_.tile_tokens = kernels::cuda::kTileRows;
    info_.page_tokens = kernels::cuda::kPageTokens;
    info_.row_multiple = 1;
  }

  const BackendInfo& info() const override { return info_; }
  int64_t FreeMemory() const override { return device_->FreeMemory(); }

  absl::StatusOr<std::unique_ptr<ExecutableModel>> Load(
      std::shared_ptr<const Model> model) override {
    if (half_) {
      return CudaModel<kernels::cuda::BFloat16>::Load(std::move(model), *device_, poison_);
    }
    return CudaModel<float>::Load(std::move(model), *device_, poison_);
  }

 private:
  std::unique_ptr<Device> device_;
  bool half_, poison_;
  BackendInfo info_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Device> device,
                                                         const CudaBackendOptions& options) {
  if (options.dtype != "f32" && options.dtype != "bf16") {
    return absl::InvalidArgumentError(
        absl::StrCat("cuda dtype is \"", options.dtype, "\", must be f32 or bf16"));
  }
  return std::make_unique<CudaBackend>(std::move(device), options);
}

}  // namespace sluice
