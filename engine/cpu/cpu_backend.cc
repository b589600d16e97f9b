#include "engine/cpu/cpu_backend.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/cgroup.h"
#include "base/error_at.h"
#include "base/status_macros.h"
#include "engine/cpu/cpu_model.h"
#include "engine/cpu/cpu_slot.h"
#include "engine/cpu/lower.h"
#include "engine/cpu/select_attention.h"
#include "engine/step_description.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/profile.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice {
namespace {

constexpr int32_t kMaxThreads = 1024;

// Returns the number of sequences at which a step nearly reaches the full speed of the processors.
// Beyond it, a step's time grows in proportion to the number of sequences.
int32_t MaxSequences(int threads) { return std::clamp(32 * threads, 64, 256); }

struct Threads {
  int running = 1;      // at the start
  int most = 1;         // the most that may run later
  bool follow = false;  // whether the number follows the CPUs of the process
};

// Returns the threads for cpu.threads. A cgroup's quota may grow while the daemon runs, so there
// are up to twice as many threads as it grants now; those that do not run sleep. Each needs scratch
// memory in every plan.
Threads ThreadsFor(int option) {
  if (option > 0) return {.running = option, .most = option};
  const int now = kernels::AvailableCpus();
  return {.running = now, .most = std::min(kernels::AffinityCpus(), 2 * now), .follow = true};
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(kernels::Profile profile, const Threads& threads, bool poison,
             AttentionVariant attention, std::function<int64_t()> free_memory)
      : free_memory_(std::move(free_memory)),
        follows_cpus_(threads.follow),
        pool_(threads.most, kernels::kMinShared),
        context_{profile, &pool_},
        poison_(poison),
        attention_(attention) {
    info_.device = "cpu";
    info_.profile = std::string(kernels::ProfileName(profile));
    info_.page_tokens = kernels::kPageTokens;
    info_.kv_memory_percent = free_memory_ == nullptr ? 25 : 50;
    info_.max_batch_sequences = MaxSequences(threads.running);
    pool_.SetRunning(threads.running);
  }

  const BackendInfo& info() const override { return info_; }
  int64_t FreeMemory() const override {
    constexpr int64_t kUnknown = int64_t{1} << 30;
    const int64_t granted = CgroupFreeMemory(ReadSystemFile).value_or(kUnknown);
    return free_memory_ == nullptr ? granted
                                   : std::max<int64_t>(std::min(granted, free_memory_()), 0);
  }

  int FollowCpus(int cpus) override {
    if (!follows_cpus_) return 0;
    pool_.SetRunning(cpus);
    return pool_.running();
  }

  int64_t PageBytes(const ModelConfig& config) const override { return CpuSlot::PageBytes(config); }

  absl::StatusOr<std::unique_ptr<ExecutableModel>> Load(
      std::shared_ptr<const Model> model) override {
    SLUICE_RETURN_IF_ERROR(CheckWeights(*model));
    SelectedAttention attention = SelectAttention(attention_, model->config, pool_.threads());
    SLUICE_ASSIGN_OR_RETURN(auto lowered, Lower(*model, context_, attention.variant));
    return std::make_unique<CpuModel>(std::move(model), context_, std::move(lowered),
                                      std::move(attention), poison_);
  }

 private:
  // Returns ResourceExhausted if the weights will not fit.
  absl::Status CheckWeights(const Model& model) const {
    const int64_t bytes = EstimateWeightMemory(model);
    const int64_t free_bytes = FreeMemory();
    if (bytes <= free_bytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("the model's weights take ", bytes, " bytes, but only ", free_bytes,
                     " are free for models. Serve fewer models, or give the daemon more memory"));
  }

  const std::function<int64_t()> free_memory_;  // nullptr if only the system limits it
  const bool follows_cpus_;
  kernels::ThreadPool pool_;
  kernels::Context context_;
  bool poison_;
  AttentionVariant attention_;
  BackendInfo info_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options,
                                                        const AttentionOptions& attention,
                                                        std::function<int64_t()> free_memory) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("cpu.threads is ", options.threads, ", must be in [0, ", kMaxThreads, "]"));
  }
  const auto profile = kernels::ParseProfile(options.profile);
  if (!profile.ok()) return ErrorAt("cpu.profile", profile.status());
  return std::make_unique<CpuBackend>(*profile, ThreadsFor(options.threads), options.poison,
                                      attention.variant, std::move(free_memory));
}

}  // namespace sluice
