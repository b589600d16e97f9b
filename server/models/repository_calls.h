// The protocol's repository methods, from their messages to the model manager.
#pragma once

#include "absl/status/status.h"
#include "proto/inference.pb.h"
#include "server/models/model_manager.h"

namespace sluice {

// Both know the parameter `version`, a decimal number as int64 or string; of Triton's others,
// unload_dependents means nothing here, and what would change a model's configuration or files is
// InvalidArgument. Errors are the manager's.
absl::Status LoadModelOf(const inference::RepositoryModelLoadRequest& request,
                         ModelManager* models);
absl::Status UnloadModelOf(const inference::RepositoryModelUnloadRequest& request,
                           ModelManager* models);

// Models that are not served are UNAVAILABLE with a reason; `ready` leaves them out.
absl::Status ListModels(const inference::RepositoryIndexRequest& request, ModelManager* models,
                        inference::RepositoryIndexResponse* response);

}  // namespace sluice
