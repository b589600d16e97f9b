#include "engine/cuda/cuda_backend.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/cuda/algorithm_table.h"
#include "engine/cuda/cuda_model.h"
#include "engine/cuda/kernel_candidates.h"
#include "engine/model/kept_channels.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/row_tiles.h"

namespace sluice {
namespace {

// The library of dense layers.
struct Library {
  std::string name = "";     // empty if there is none
  std::string missing = "";  // the reason if cuda.dense allows one but none is found
  std::optional<AlgorithmTable> table = std::nullopt;
};

std::string ProfileOf(const DeviceInfo& device, const CudaBackendOptions& options,
                      const Library& library) {
  std::string profile = absl::StrCat("cuda-", device.architecture, "-", options.dtype);
  if (options.kernels == "auto") {
    const auto tiers = options.dtype == "bf16" ? TunedTiers<kernels::cuda::BFloat16>(device)
                                               : TunedTiers<float>(device);
    for (const std::string& tier : tiers) absl::StrAppend(&profile, "-", tier);
  }
  if (library.name.empty()) return profile;
  // Which algorithms the library offers depends on the GPU and on how many of its processors this
  // process has.
  absl::StrAppend(&profile, "-", library.name, "-");
  for (const char c : device.name) profile += absl::ascii_isalnum(c) ? absl::ascii_tolower(c) : '_';
  absl::StrAppend(&profile, "-", device.processors);
  if (library.table) absl::StrAppend(&profile, "-", library.table->Digest());
  return profile;
}

// Returns InvalidArgument for a model with ops, or precisions, that have no kernels.
absl::Status CheckSupport(const Model& model) {
  if (AnyIn(model, Quantization::kInt4)) {
    return absl::InvalidArgumentError(
        "int4 projections run only on a CPU; serve the model with device: cpu, or with "
        "quantization: int8 if its checkpoint is not in int4");
  }
  for (const GraphOp& op : model.graph.ops) {
    const auto* const linear = std::get_if<LinearOp>(&op);
    if (linear != nullptr && model.checkpoint.Lists(NameOfKeptChannels(linear->weight.name))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", NameOfKeptChannels(linear->weight.name),
          ": kept channels run only on a CPU; serve the model with device: cpu, or write it by "
          "sluice quantize without --keep-channels"));
    }
    if (linear != nullptr && linear->routes && PrecisionOf(model, *linear).stored) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", linear->weight.name,
                       ": a router that is stored in int8 runs only on a CPU; serve the model with "
                       "device: cpu"));
    }
    const auto* const head = std::get_if<HeadOp>(&op);
    if (head == nullptr || PrecisionOf(model, *head).quantization == Quantization::kNone) continue;
    return absl::InvalidArgumentError(
        "an int8 head runs only on a CPU; serve the model with device: cpu, or with quantize_head: "
        "false and a checkpoint whose head is not quantised");
  }
  if (model.config.kv_dtype != KvType::kF32) {
    return absl::InvalidArgumentError(
        "kv_dtype applies only on a CPU; a GPU's pages have the type cuda.dtype");
  }
  return absl::OkStatus();
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<Device> device, const CudaBackendOptions& options, Library library)
      : device_(std::move(device)),
        half_(options.dtype == "bf16"),
        poison_(options.poison),
        tried_kernels_(options.kernels == "auto"),
        pool_(options.threads > 0 ? options.threads : kernels::AvailableCpus()),
        library_(std::move(library)) {
    info_.device = options.device;
    info_.profile = ProfileOf(device_->info(), options, library_);
    info_.page_tokens = kernels::cuda::kPageTokens;
    info_.steps_ahead = kStepsAhead;
    info_.timed_runs = 5;
    info_.max_buckets = 256;
    info_.kv_memory_percent = 90;  // the rest is for captured graphs
  }

  const BackendInfo& info() const override { return info_; }
  int64_t FreeMemory() const override { return device_->FreeMemory(); }

  int64_t PageBytes(const ModelConfig& config) const override {
    return half_ ? CudaSlot<kernels::cuda::BFloat16>::PageBytes(config)
                 : CudaSlot<float>::PageBytes(config);
  }

  absl::StatusOr<std::unique_ptr<ExecutableModel>> Load(
      std::shared_ptr<const Model> model) override {
    SLUICE_RETURN_IF_ERROR(CheckSupport(*model));
    return half_ ? LoadAs<kernels::cuda::BFloat16>(std::move(model))
                 : LoadAs<float>(std::move(model));
  }

 private:
  template <typename T>
  absl::StatusOr<std::unique_ptr<ExecutableModel>> LoadAs(std::shared_ptr<const Model> model) {
    return CudaModel<T>::Load(std::move(model), *device_,
                              {.poison = poison_,
                               .library = library_.name,
                               .missing_library = library_.missing,
                               .table = library_.table ? &*library_.table : nullptr,
                               .tried_kernels = tried_kernels_,
                               .pool = &pool_,
                               .profile = info_.profile});
  }

  std::unique_ptr<Device> device_;
  bool half_, poison_, tried_kernels_;
  kernels::ThreadPool pool_;
  const Library library_;
  BackendInfo info_;
};

absl::StatusOr<Library> FindLibrary(const Device& device, const CudaBackendOptions& options) {
  if (options.dense == "own") {
    if (options.algorithms.empty()) return Library{};
    return absl::InvalidArgumentError("cuda.algorithms needs cuda.dense: cublaslt");
  }
  absl::StatusOr<std::string> name = device.DenseLibrary();
  if (absl::IsFailedPrecondition(name.status())) {
    if (options.dense == "auto" && options.algorithms.empty()) {
      return Library{.missing = std::string(name.status().message())};
    }
    return absl::FailedPreconditionError(
        absl::StrCat(options.dense == "auto" ? "cuda.algorithms is set" : "cuda.dense is cublaslt",
                     ", but ", name.status().message()));
  }
  SLUICE_RETURN_IF_ERROR(name.status());
  SLUICE_ASSIGN_OR_RETURN(auto table, ChooseTable(device.info().name, *name, options.algorithms,
                                                  CommittedAlgorithms()));
  return Library{.name = *std::move(name), .table = std::move(table)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Device> device,
                                                         const CudaBackendOptions& options) {
  if (options.dtype != "f32" && options.dtype != "bf16") {
    return absl::InvalidArgumentError(
        absl::StrCat("cuda.dtype is \"", options.dtype, "\", must be f32 or bf16"));
  }
  if (options.dense != "auto" && options.dense != "own" && options.dense != "cublaslt") {
    return absl::InvalidArgumentError(
        absl::StrCat("cuda.dense is \"", options.dense, "\", must be auto, own or cublaslt"));
  }
  if (options.kernels != "auto" && options.kernels != "portable") {
    return absl::InvalidArgumentError(
        absl::StrCat("cuda.kernels is \"", options.kernels, "\", must be auto or portable"));
  }
  SLUICE_ASSIGN_OR_RETURN(Library library, FindLibrary(*device, options));
  return std::make_unique<CudaBackend>(std::move(device), options, std::move(library));
}

}  // namespace sluice
