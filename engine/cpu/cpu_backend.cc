#include "engine/cpu/cpu_backend.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/cgroup.h"
#include "base/status_macros.h"
#include "engine/cpu/attention_choice.h"
#include "engine/cpu/cpu_model.h"
#include "engine/cpu/device_probe.h"
#include "engine/cpu/lower.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/profile.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice {
namespace {

constexpr int32_t kMaxThreads = 1024;
// Multiples of the rows that products compute together: those of a GEMM tile of vectors in each
// profile, and those of a tile register of AMX.
constexpr int32_t kVectorTileTokens = 12;
constexpr int32_t kAmxTileTokens = 16;

class CpuBackend final : public Backend {
 public:
  // `device` is nullptr if it is to be measured.
  CpuBackend(kernels::Profile profile, int threads, bool poison, AttentionVariant attention,
             std::shared_ptr<const einsum::DeviceDescription> device)
      : pool_(threads),
        context_{profile, &pool_},
        poison_(poison),
        attention_(attention),
        device_(std::move(device)) {
    info_.device = "cpu";
    info_.profile = std::string(kernels::ProfileName(profile));
    info_.tile_tokens = profile == kernels::Profile::kAmxBf16 ? kAmxTileTokens : kVectorTileTokens;
    info_.page_tokens = kernels::kPageTokens;
    info_.row_multiple = 1;
  }

  const BackendInfo& info() const override { return info_; }
  int64_t FreeMemory() const override {
    constexpr int64_t kUnknown = int64_t{1} << 30;
    return CgroupFreeMemory(ReadSystemFile).value_or(kUnknown);
  }

  absl::StatusOr<std::unique_ptr<ExecutableModel>> Load(
      std::shared_ptr<const Model> model) override {
    AttentionDecision attention =
        ChooseAttention(attention_, model->config, [&]() -> const einsum::DeviceDescription& {
          return device_ != nullptr ? *device_ : DeviceOfThisMachine(context_);
        });
    SLUICE_ASSIGN_OR_RETURN(auto lowered, Lower(*model, context_, attention.variant));
    return std::make_unique<CpuModel>(std::move(model), context_, std::move(lowered),
                                      std::move(attention), device_, poison_);
  }

 private:
  kernels::ThreadPool pool_;
  kernels::Context context_;
  bool poison_;
  AttentionVariant attention_;
  std::shared_ptr<const einsum::DeviceDescription> device_;
  BackendInfo info_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options,
                                                        const AttentionOptions& attention) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("cpu threads is ", options.threads, ", must be in [0, ", kMaxThreads, "]"));
  }
  SLUICE_ASSIGN_OR_RETURN(auto profile, kernels::ParseProfile(options.profile));
  const int threads = options.threads > 0 ? options.threads : kernels::AvailableCpus();
  std::shared_ptr<const einsum::DeviceDescription> device;
  if (!attention.device.empty()) {
    SLUICE_ASSIGN_OR_RETURN(auto read, ReadDeviceFile(attention.device));
    device = std::make_shared<const einsum::DeviceDescription>(std::move(read));
  }
  return std::make_unique<CpuBackend>(profile, threads, options.poison, attention.variant,
                                      std::move(device));
}

}  // namespace sluice
