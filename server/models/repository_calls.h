// The protocol's repository methods: they pass messages on to the model manager.
#pragma once

#include "absl/status/status.h"
#include "proto/inference.pb.h"
#include "server/models/model_manager.h"

namespace sluice {

// LoadModelOf and UnloadModelOf load and unload a model. Both accept the parameter `version`, a
// decimal number as int64 or string. Of Triton's other parameters, unload_dependents has no effect,
// and those that would change a model's configuration or files are InvalidArgument. Other errors
// are those of the manager.
absl::Status LoadModelOf(const inference::RepositoryModelLoadRequest& request,
                         ModelManager* models);
absl::Status UnloadModelOf(const inference::RepositoryModelUnloadRequest& request,
                           ModelManager* models);

// What a listing says of a model that is not served or whose newer files are refused. Reasons name
// paths of the daemon's host, which are none of a caller's business who may only infer.
enum class Reasons { kInFull, kInAWord };

// Lists the models. Those that are not served are UNAVAILABLE with a reason; `ready` leaves them
// out.
absl::Status ListModels(const inference::RepositoryIndexRequest& request, ModelManager* models,
                        Reasons reasons, inference::RepositoryIndexResponse* response);

}  // namespace sluice
