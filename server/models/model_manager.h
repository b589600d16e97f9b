// The served models: those in the configuration and the model repository, and models that callers
// load and unload by name while the daemon runs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "server/common/log.h"
#include "server/common/options.h"
#include "server/models/model_target.h"

namespace sluice {

// Thread-safe. Apply, Load and Unload run one at a time and take the time that models need to load
// and warm up. In that time the served models stay in service, and after an error the same models
// are served as before. Index reads the disk, but does not wait for the other three.
class ModelManager {
 public:
  // Neither is owned; both outlive the manager. `weights` selects how weight files are read. Apply
  // and Load end early with the error of `interrupted`, which they call now and then.
  ModelManager(
      Engine* engine, Log* log, FileAccess weights = FileAccess::kMap,
      std::function<absl::Status()> interrupted = [] { return absl::OkStatus(); })
      : engine_(engine), log_(log), weights_(weights), interrupted_(std::move(interrupted)) {}

  // Sets the function that is called after each change of the served models, and after each Apply.
  // Must be called before the other methods.
  void SetOnChange(std::function<void()> on_change) { on_change_ = std::move(on_change); }

  // Sets the function that is called after each attempt to load models: each Load, and each Apply
  // that fails or loads a model, and once more for each model that an Apply left out. Must be
  // called before the other methods.
  void SetOnLoad(std::function<void(bool ok)> on_load) { on_load_ = std::move(on_load); }

  // The models that an operation loaded and withdrew, in the form "NAME version N", and those that
  // it could not load, in the form "NAME version N: REASON".
  struct Changes {
    std::vector<std::string> loaded;
    std::vector<std::string> withdrawn;
    std::vector<std::string> failed;
  };

  // Serves `models` and the highest version of each model in `repository`, and nothing else. An
  // empty `repository` means none. A served model is not loaded again if its files and options are
  // the same.
  //
  // A model of the repository that cannot be loaded is left out: the others are served, and a
  // version of it that is already served stays. The index and the log have the reason. An error is
  // returned if a model of `models` cannot be loaded, or a draft model of one of them, or if no
  // model would be served because all of them were left out.
  absl::StatusOr<Changes> Apply(const std::vector<ModelSpec>& models,
                                const std::string& repository);

  // The models that were read, and an estimate of their memory on a CPU.
  struct Checked {
    int64_t models = 0;
    int64_t weight_bytes = 0;  // packed; EstimateWeightMemory
    int64_t file_bytes = 0;    // of the weight files, which the daemon copies or maps
    // Of each model that Apply would leave out, and the one that Apply would return.
    std::vector<absl::Status> errors;
  };
  // A further check of a model with its own ladder. The error names the model.
  using CheckModel = std::function<absl::Status(const Model&, const LadderChoice&)>;
  // Reads the configuration, the tokenizer and the headers of the weights of the models that Apply
  // would serve, and calls `check` for each that can be read. Needs no engine.
  Checked Check(const std::vector<ModelSpec>& models, const std::string& repository,
                const CheckModel& check = nullptr);

  // Loads the named model from the configuration or the repository, even if it is already served,
  // with the adapters in its folder. Without a version, loads the highest one, which then replaces
  // all other versions of the name. For MODEL:ADAPTER, loads the adapter of the served model.
  // A `path` that is not empty must lead to the folder of the adapter. Returns NotFound if there is
  // no such model, InvalidArgument for another path, and the errors of loading. Errors are logged.
  absl::Status Load(const std::string& name, std::optional<int64_t> version,
                    const std::string& path = "");

  // Stops serving the version, or all versions of the name if none is given; for a name
  // MODEL:ADAPTER, the adapter. Forgets failed loads of these versions. Returns NotFound if there
  // is no such model or adapter.
  absl::Status Unload(const std::string& name, std::optional<int64_t> version);

  // The reasons of an entry whose load did not fail.
  static constexpr char kLoading[] = "loading";
  static constexpr char kNotLoaded[] = "not loaded";

  struct Entry {
    std::string name;
    int64_t version;  // 0 if no version can be loaded
    bool ready;
    std::string reason;  // why it is not ready, or why its last load failed; kLoading if it loads
  };
  absl::StatusOr<std::vector<Entry>> Index();

  // Returns `error`, the error of a request for this model. If the model is not served because its
  // last load failed, the message says so, and where the reason is. An empty version means any.
  absl::Status WithFailedLoad(const absl::Status& error, std::string_view name,
                              std::string_view version) const;

  // Returns the models whose last load failed, whether an older version is served or not, as
  // "NAME version N", by name.
  std::vector<std::string> FailedModels() const;

 private:
  absl::StatusOr<Changes> ApplyInTurn(const std::vector<ModelSpec>& models,
                                      const std::string& repository, ModelFailures* failures)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_mu_);
  absl::Status LoadInTurn(const std::string& name, std::optional<int64_t> version,
                          const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_mu_);
  // Returns the highest loaded version of a draft model.
  absl::StatusOr<std::shared_ptr<const Model>> FindDraft(const std::string& name,
                                                         const ModelChange& change) const;
  std::shared_ptr<const Model> Served(const ModelKey& key) const;
  // Returns the served model of a name MODEL:ADAPTER.
  absl::StatusOr<std::shared_ptr<const Model>> ModelOfAdapter(std::string_view name,
                                                              std::optional<int64_t> version) const;
  absl::Status LoadAdapterOf(const Model& model, const std::string& name, const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_mu_);
  // Adds the models that it leaves out to `failures`, which may have some. After an error, only the
  // model that caused it counts as failed.
  absl::StatusOr<Changes> Serve(const std::vector<ModelTarget>& targets,
                                std::vector<std::shared_ptr<const Model>> withdraw,
                                ModelFailures* failures) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_mu_);
  // After an error of a model, `*failed` is the model.
  absl::Status LoadAll(const std::vector<ModelTarget>& targets, ModelChange* change,
                       ModelFailures* failures, const ModelTarget** failed) const;
  absl::StatusOr<std::shared_ptr<const Model>> LoadTarget(const ModelTarget& target,
                                                          const ModelChange& change) const;
  static bool MayLeaveOut(const ModelTarget& target, const absl::Status& status);
  // Removes the failed models from the change, and the served ones of their names.
  static void LeaveOut(const ModelFailures& failures, ModelChange* change);
  // Returns whether a model is served after the change without the failed ones.
  bool Remains(ModelChange change, const ModelFailures& failures) const;
  void LogWarnings(const Model& model) const;
  void LogChange(const ModelChange& change);
  void LogFailure(const std::string& name, std::optional<int64_t> version,
                  const absl::Status& status);
  // Sets the note of a model, or removes it if `reason` is empty. Returns the previous note.
  std::string Note(const ModelKey& key, const std::string& reason);
  // Removes the notes of the version, or of all versions of the name if none is given.
  void Forget(const std::string& name, std::optional<int64_t> version);
  std::optional<ModelRepository> repository() const;

  Engine* const engine_;
  Log* const log_;
  std::function<void()> on_change_ = [] {};
  std::function<void(bool ok)> on_load_ = [](bool) {};
  const FileAccess weights_;
  const std::function<absl::Status()> interrupted_;

  Mutex turn_mu_;  // held during a whole operation
  std::vector<ModelSpec> models_ ABSL_GUARDED_BY(turn_mu_);
  std::map<ModelKey, std::string> fingerprints_
      ABSL_GUARDED_BY(turn_mu_);  // of the files loaded last

  mutable Mutex mu_;  // no other lock is taken under it
  std::optional<ModelRepository> repository_ ABSL_GUARDED_BY(mu_);
  std::map<ModelKey, std::string> notes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
