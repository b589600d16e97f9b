#include "server/daemon/check.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/atomic_file.h"
#include "base/out_of_memory.h"
#include "base/resident_memory.h"
#include "base/status_macros.h"
#include "base/write_file.h"
#include "server/common/log.h"
#include "server/common/memory_limits.h"
#include "server/daemon/device.h"
#include "server/models/model_manager.h"
#include "server/models/model_target.h"
#include "server/security/security.h"

namespace sluice {
namespace {

// Returns the errors of each model by itself, or those of all together if there are none.
std::vector<absl::Status> ModelErrors(const Config& config, std::vector<absl::Status> together,
                                      const ModelManager::CheckModel& check_model,
                                      ModelManager* manager) {
  std::vector<absl::Status> errors;
  for (ModelSpec model : config.models) {
    model.speculation = {};  // A draft model is another model of the list.
    std::ranges::move(manager->Check({model}, /*repository=*/"", check_model).errors,
                      std::back_inserter(errors));
  }
  std::ranges::move(manager->Check({}, config.model_repository, check_model).errors,
                    std::back_inserter(errors));
  return errors.empty() ? together : errors;
}

void CheckModels(const Config& config, const ModelManager::CheckModel& check_model, Log* log,
                 ConfigCheck* check) {
  const absl::Status status = OrOutOfMemory([&] {
    ModelManager manager(/*engine=*/nullptr, log);
    ModelManager::Checked models =
        manager.Check(config.models, config.model_repository, check_model);
    if (models.errors.empty()) {
      check->models = std::move(models);
      return absl::OkStatus();
    }
    std::ranges::move(ModelErrors(config, std::move(models.errors), check_model, &manager),
                      std::back_inserter(check->errors));
    return absl::OkStatus();
  });
  if (!status.ok()) check->errors.push_back(status);
}

// Adds the option and the remedy to an error.
absl::Status OfFile(absl::string_view option, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::FailedPreconditionError(absl::StrCat(
      option, ": ", status.message(),
      "; name a file in a folder that exists, and let the daemon read and write both"));
}

// Returns an error if no file can be created in the folder of `path`.
absl::Status CheckFolder(const std::filesystem::path& path) {
  const std::string folder = path.has_parent_path() ? path.parent_path() : ".";
  if (access(absl::StrCat(folder, "/.").c_str(), W_OK) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", folder));
}

// Returns an error if the file exists and cannot be read.
absl::Status CheckReadable(const std::string& path) {
  if (access(path.c_str(), R_OK) == 0 || errno == ENOENT) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
}

}  // namespace

absl::Status CheckFiles(const Config& config) {
  const std::string& ladder = config.engine.ladder.file;
  const absl::Status file = CheckReplaceable(ladder);
  if (!file.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("engine.ladder.file: ", file.message()));
  }
  if (!ladder.empty()) {
    SLUICE_RETURN_IF_ERROR(OfFile("engine.ladder.file", CheckFolder(ladder)));
  }
  const std::string& journal = config.engine.history.journal;
  if (journal.empty()) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(OfFile("engine.history.journal", CheckWritable(journal)));
  return OfFile("engine.history.journal", CheckReadable(journal));
}

ConfigCheck CheckConfig(const Config& config) {
  ConfigCheck check;
  const auto add = [&check](const absl::Status& status) {
    if (!status.ok()) check.errors.push_back(status);
  };
  const ServerOptions options = WithMemoryShares(config.server);
  const int64_t models = CountModels(config.models, config.model_repository);
  const EngineOptions engine = WithMemoryShares(config.engine, options.memory.limit_bytes, models);
  const auto limits_now = [&] {
    return ComputeMemoryLimits(options, engine.queue.max_bytes, std::max<int64_t>(models, 1),
                               ResidentBytes());
  };
  add(CheckMessageSize(options.grpc));
  const absl::Status enough = limits_now().Check();
  add(enough);
  add(CheckFiles(config));
  const auto chosen = MakeBackend(config.device, config.cpu, config.cuda, config.engine.attention);
  add(chosen.status());
  for (const absl::Status& error : Security::ErrorsOf(config.server)) add(error);
  const absl::StatusOr<std::unique_ptr<Log>> log = Log::Create(config.server.log);
  add(log.status());
  const auto check_model = [&](const Model& model, const LadderChoice& ladder) {
    return chosen.ok() ? CheckOptions(engine, model, ladder, *chosen->backend) : absl::OkStatus();
  };
  const std::string warning = MemoryLimitWarning(config.server.memory);
  if (log.ok() && !warning.empty()) (*log)->Warn(warning);
  if (log.ok()) CheckModels(config, check_model, log->get(), &check);
  if (enough.ok() && chosen.ok() && chosen->backend->info().device == "cpu") {
    const int64_t copied = config.server.memory.copy_weights ? check.models.file_bytes : 0;
    // By now the process has the device's threads and has read the models, as when the daemon packs
    // the weights.
    const MemoryLimits limits = limits_now();
    const int64_t weights = check.models.weight_bytes + copied;
    add(CheckWeights(limits, weights));
    check.free_bytes = limits.limit - limits.sum() - weights;
  }
  return check;
}

}  // namespace sluice
