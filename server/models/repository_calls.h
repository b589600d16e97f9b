// The protocol's repository methods. They pass messages to the model manager.
#pragma once

#include "absl/status/status.h"
#include "proto/inference.pb.h"
#include "server/models/model_manager.h"

namespace sluice {

// LoadModelOf and UnloadModelOf load and unload a model. Both accept the parameter `version`, a
// decimal number as int64 or string. Triton's parameter unload_dependents has no effect, and
// parameters that would change a model's configuration or files are InvalidArgument. Other errors
// come from the manager.
absl::Status LoadModelOf(const inference::RepositoryModelLoadRequest& request,
                         ModelManager* models);
absl::Status UnloadModelOf(const inference::RepositoryModelUnloadRequest& request,
                           ModelManager* models);

// How much a listing reveals about a model whose files are refused. Reasons contain paths of the
// daemon's host, so callers that may only infer do not get them.
enum class Reasons { kInFull, kInAWord };

// Lists the models. Models that are not served are UNAVAILABLE with a reason; `ready` leaves them
// out.
absl::Status ListModels(const inference::RepositoryIndexRequest& request, ModelManager* models,
                        Reasons reasons, inference::RepositoryIndexResponse* response);

}  // namespace sluice
