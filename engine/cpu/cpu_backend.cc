#include "engine/cpu/cpu_backend.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/cgroup.h"
#include "base/status_macros.h"
#include "engine/cpu/attention_choice.h"
#include "engine/cpu/cpu_model.h"
#include "engine/cpu/lower.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/profile.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice {
namespace {

constexpr int32_t kMaxThreads = 1024;
// A multiple of the rows of a GEMM tile in each profile.
constexpr int32_t kTileTokens = 12;

class CpuBackend final : public Backend {
 public:
  CpuBackend(kernels::Profile profile, int threads, bool poison, AttentionVariant attention)
      : pool_(threads), context_{profile, &pool_}, poison_(poison), attention_(attention) {
    info_.device = "cpu";
    info_.profile = std::string(kernels::ProfileName(profile));
    info_.tile_tokens = kTileTokens;
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
    const AttentionVariant attention = ChooseAttention(attention_, pool_.threads());
    SLUICE_ASSIGN_OR_RETURN(auto lowered, Lower(*model, context_, attention));
    return std::make_unique<CpuModel>(std::move(model), context_, std::move(lowered), attention,
                                      poison_);
  }

 private:
  kernels::ThreadPool pool_;
  kernels::Context context_;
  bool poison_;
  AttentionVariant attention_;
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
  return std::make_unique<CpuBackend>(profile, threads, options.poison, attention.variant);
}

}  // namespace sluice
