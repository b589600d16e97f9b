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
  // `library`: of dense layers; empty: none.
  CudaBackend(std::unique_ptr<Device> device, const CudaBackendOptions& options,
              const std::string& library)
      : device_(std::move(device)),
        half_(options.dtype == "bf16"),
        poison_(options.poison),
        library_(!library.empty()) {
    info_.device = options.device;
    info_.profile = absl::StrCat("cuda-", device_->info().architecture, "-", options.dtype,
                                 library_ ? "-" : "", library);
    info_.tile_tokens = kernels::cuda::kTileRows;
    info_.page_tokens = kernels::cuda::kPageTokens;
    info_.row_multiple = 1;
    info_.steps_ahead = kStepsAhead;
  }

  const BackendInfo& info() const override { return info_; }
  int64_t FreeMemory() const override { return device_->FreeMemory(); }

  absl::StatusOr<std::unique_ptr<ExecutableModel>> Load(
      std::shared_ptr<const Model> model) override {
    using BFloat16 = kernels::cuda::BFloat16;
    if (half_) {
      return CudaModel<BFloat16>::Load(std::move(model), *device_,
                                       {.poison = poison_, .library = library_});
    }
    return CudaModel<float>::Load(std::move(model), *device_,
                                  {.poison = poison_, .library = library_});
  }

 private:
  std::unique_ptr<Device> device_;
  bool half_, poison_, library_;
  BackendInfo info_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Device> device,
                                                         const CudaBackendOptions& options) {
  if (options.dtype != "f32" && options.dtype != "bf16") {
    return absl::InvalidArgumentError(
        absl::StrCat("cuda dtype is \"", options.dtype, "\", must be f32 or bf16"));
  }
  if (options.dense != "own" && options.dense != "cublaslt") {
    return absl::InvalidArgumentError(
        absl::StrCat("cuda dense is \"", options.dense, "\", must be own or cublaslt"));
  }
  std::string library;
  if (options.dense == "cublaslt") {
    absl::StatusOr<std::string> found = device->DenseLibrary();
    if (!found.ok()) return found.status();
    library = *std::move(found);
  }
  return std::make_unique<CudaBackend>(std::move(device), options, library);
}

}  // namespace sluice
