// The models that the configuration lists and those of the model repository: where their files are
// and how they are loaded. Nothing here needs an engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/engine.h"
#include "engine/model/repository.h"
#include "server/common/log.h"
#include "server/common/options.h"

namespace sluice {

using ModelKey = std::pair<std::string, int64_t>;  // name and version

// A model to serve.
struct ModelTarget {
  ModelKey key;
  std::string place;  // the location of the model, for messages
  Directory folder;
  std::string files;        // the fingerprint of the folder
  std::string fingerprint;  // of the files, the adapters and the options
  ModelOptions options{};
  LadderChoice ladder{};
  bool required = true;  // whether no other model is served if this one cannot be loaded
};

// A model that was left out.
struct ModelFailure {
  ModelKey key;
  absl::Status status;
};
using ModelFailures = std::vector<ModelFailure>;

// Returns the repository at `path`, or nothing if the path is empty.
absl::StatusOr<std::optional<ModelRepository>> OpenRepository(const std::string& path);

// Returns the number of `models` and of the models in the repository at `path`, which may be empty.
// The models of a repository that cannot be read do not count.
int64_t CountModels(const std::vector<ModelSpec>& models, const std::string& path);

// Returns `models` and the highest version of each model in the repository. Draft models come
// first, and the fingerprint of a model covers its draft model. Models of the repository are not
// required, except the draft models of `models`; one that cannot be read is added to `failures`.
// Logs a warning for each folder that is not a model. Returns InvalidArgument if a model is in both
// places or a draft model is missing, and the errors of reading the other models.
absl::StatusOr<std::vector<ModelTarget>> FindTargets(
    const std::vector<ModelSpec>& models, const std::optional<ModelRepository>& repository,
    ModelFailures* failures, Log* log);

// Returns the named model of `models` or else of the repository, its highest version if none is
// given. Returns NotFound with the nearest and the known names if there is none.
absl::StatusOr<ModelTarget> FindTarget(const std::vector<ModelSpec>& models,
                                       const std::optional<ModelRepository>& repository,
                                       const std::string& name, std::optional<int64_t> version);

// Returns the error with the model and its place.
absl::Status OfModel(const ModelKey& key, absl::string_view place, const absl::Status& status);

// Returns the error that the model cannot be loaded because a file is missing, with what to do if
// its folder has folders of models or is a cache of the Hugging Face hub.
absl::Status MissingFile(const ModelTarget& target, const absl::Status& status);

// Returns NotFound with the name that is nearest to `name`, and the known ones. `kind` and `where`
// complete the sentence "no KIND NAME WHERE".
absl::Status NoSuchName(absl::string_view kind, const std::string& name,
                        std::optional<int64_t> version, absl::string_view where,
                        const std::vector<std::string>& known);

// Returns NotFound with the known versions of the model.
absl::Status NoVersion(const std::string& name, std::optional<int64_t> version,
                       absl::string_view where, const std::vector<int64_t>& known);

}  // namespace sluice
