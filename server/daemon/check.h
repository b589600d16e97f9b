// The checks of sluiced --check: everything that the start reads, without serving.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "config/config.h"
#include "server/models/model_manager.h"

namespace sluice {

// Returns FailedPrecondition if the daemon cannot replace engine.ladder.file or cannot create
// engine.history.journal, for example because the folder does not exist.
absl::Status CheckFiles(const Config& config);

struct ConfigCheck {
  ModelManager::Checked models;      // if there are no errors
  std::vector<absl::Status> errors;  // of all parts; the messages equal those of the start
};

// Opens the device, and reads the files of TLS, the callers and the models by the functions of the
// start. Loads no weights. On a CPU, an estimate of their memory that exceeds the memory limit is
// an error; on a GPU the start finds whether they fit. Activations and KV pages take the memory
// that is left, so they are not estimated. Writes warnings about models to the log of `config`.
ConfigCheck CheckConfig(const Config& config);

}  // namespace sluice
