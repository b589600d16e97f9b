// The checks of sluiced --check: everything that the start reads, without serving.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "config/config.h"

namespace sluice {

// Returns FailedPrecondition if the daemon cannot replace engine.ladder.file or cannot create
// engine.history.journal, for example because the folder does not exist.
absl::Status CheckFiles(const Config& config);

struct ConfigCheck {
  int64_t models = 0;                // the number of models, if there are no errors
  std::vector<absl::Status> errors;  // of all parts; the messages equal those of the start
};

// Opens the device, and reads the files of TLS, the callers and the models by the functions of the
// start. Loads no weights, so whether models fit into the memory is not known; only a limit that is
// too low without any model is an error. Writes warnings about models to the log of `config`.
ConfigCheck CheckConfig(const Config& config);

}  // namespace sluice
