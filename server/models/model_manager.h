// Which models are served: those of the configuration and of the model repository, and what callers
// load and unload by name while the daemon runs.
#pragma once

#include <cstdint>
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
#include "engine/model/repository.h"
#include "server/common/log.h"
#include "server/common/options.h"

namespace sluice {

// Thread-safe. Apply, Load and Unload take turns and last as long as models take to load and to
// warm up; what serves goes on serving meanwhile, and after an error everything is served as
// before. Index reads the disk, but waits for none of them.
class ModelManager {
 public:
  // Not owned; both outlive it.
  ModelManager(Engine* engine, Log* log) : engine_(engine), log_(log) {}

  // Serves `models` and the highest version of each model below `repository` (empty: there is
  // none), and nothing else. What is served already and has not changed on disk is left alone.
  absl::Status Apply(const std::vector<ModelSpec>& models, const std::string& repository);

  // Loads what the configuration or the repository has under the name, again if it is served;
  // without a version the highest, which then takes the place of the name's other versions.
  // NotFound; else what loading says.
  absl::Status Load(const std::string& name, std::optional<int64_t> version);

  // Withdraws the version, or without one all of the name. NotFound.
  absl::Status Unload(const std::string& name, std::optional<int64_t> version);

  struct Entry {
    std::string name;
    int64_t version;  // 0: it has none that could be loaded
    bool ready;
    std::string reason;  // why it is not ready, or why its last load failed
  };
  absl::StatusOr<std::vector<Entry>> Index();

 private:
  using Key = std::pair<std::string, int64_t>;
  struct Target {
    Key key;
    std::string place;  // for messages
    Directory folder;
    std::string fingerprint;
  };

  static absl::StatusOr<Target> FromSpec(const ModelSpec& spec);
  static absl::StatusOr<Target> FromRepository(const ModelRepository& repository,
                                               const ModelRepository::Found& found,
                                               int64_t version);
  absl::StatusOr<std::vector<Target>> Targets(const std::vector<ModelSpec>& models,
                                              const std::optional<ModelRepository>& repository);
  absl::StatusOr<Target> Named(const std::string& name, std::optional<int64_t> version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_mu_);
  std::shared_ptr<const Model> Served(const Key& key) const;
  absl::Status Serve(const std::vector<Target>& targets,
                     std::vector<std::shared_ptr<const Model>> withdraw)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_mu_);
  static absl::Status LoadAll(const std::vector<Target>& targets, ModelChange* change);
  void LogChange(const ModelChange& change);
  void Note(const Key& key, const std::string& reason);  // empty: none
  std::optional<ModelRepository> repository() const;

  Engine* const engine_;
  Log* const log_;

  Mutex turn_mu_;  // held for a whole operation
  std::vector<ModelSpec> models_ ABSL_GUARDED_BY(turn_mu_);
  std::map<Key, std::string> fingerprints_ ABSL_GUARDED_BY(turn_mu_);  // of what was loaded last

  mutable Mutex mu_;  // a leaf
  std::optional<ModelRepository> repository_ ABSL_GUARDED_BY(mu_);
  std::map<Key, std::string> notes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
