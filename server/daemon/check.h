// The checks of sluiced --check: everything that the start reads, without serving.
#pragma once

#include <cstdint>
#include <optional>
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
  // On a CPU, the estimated memory that the weights leave for activations, KV pages and plans.
  std::optional<int64_t> free_bytes;
};

// Opens the device, and reads the files of TLS, the callers and the models by the functions of the
// start. Loads no weights. On a CPU, an estimate of their memory that exceeds the memory limit is
// an error; on a GPU the start finds whether they fit. Activations and KV pages need some of the
// memory that is left, which only the start measures. Writes warnings about models and
// about the memory limit to the log of `config`.
ConfigCheck CheckConfig(const Config& config);

}  // namespace sluice
