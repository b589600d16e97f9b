#include "engine/cuda/gpu_count.h"

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

std::string VersionName(int version) {
  return absl::StrCat("CUDA ", version / 1000, ".", version % 1000 / 10);
}

}  // namespace

absl::StatusOr<int> CountOf(const GpuAnswers& answers) {
  if (answers.error.empty()) return answers.count;
  if (answers.none_found) return 0;
  // Without a driver, the runtime reports the same error as with a driver that is too old.
  if (answers.driver_version == 0) return absl::NotFoundError("this host has no NVIDIA driver");
  if (answers.driver_version < answers.runtime_version) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the NVIDIA driver is too old: it supports ", VersionName(answers.driver_version),
        ", and this build needs ", VersionName(answers.runtime_version)));
  }
  return absl::FailedPreconditionError(answers.error);
}

}  // namespace sluice
