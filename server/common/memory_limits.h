// The limits of the process's memory, one for each use.
//
//   options = WithMemoryShares(options);
//   auto limits = ComputeMemoryLimits(options, queue_bytes, models, ResidentBytes());
//   SLUICE_RETURN_IF_ERROR(limits.Check());
//
// Each line is a limit that is enforced (gRPC's quota, a MemoryBudget, the queue's max_bytes) or
// memory that a model took when it was loaded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/cgroup.h"
#include "engine/engine_stats.h"
#include "engine/options.h"
#include "server/common/options.h"

namespace sluice {

struct MemoryLine {
  const char* use;  // a label of metrics
  int64_t bytes;
  const char* option;  // the option that changes the limit
};

struct MemoryLimits {
  int64_t limit = 0;
  std::vector<MemoryLine> lines{};

  int64_t sum() const;
  // Returns the bytes of a line, or 0 if there is no line for this use.
  int64_t Of(std::string_view use) const;
  // Returns "900.0 MiB of 2048.0 MiB (server.memory.limit_bytes): messages 512.0 MiB (...), ...".
  std::string Text() const;
  // Returns ResourceExhausted, with all lines and their options, if the sum exceeds the limit.
  absl::Status Check() const;
};

// Returns limit_bytes or, if it is 0, the memory of the cgroup or the machine.
int64_t ProcessMemoryLimit(const MemoryOptions& options, FileReader read = ReadSystemFile);

// Returns a warning if limit_bytes exceeds the memory of the cgroup or the machine, otherwise an
// empty text.
std::string MemoryLimitWarning(const MemoryOptions& options, FileReader read = ReadSystemFile);

// Replaces each 0 that stands for a share of the memory by the number of bytes.
ServerOptions WithMemoryShares(ServerOptions options);
EngineOptions WithMemoryShares(EngineOptions options, int64_t limit, int64_t models);

// Returns InvalidArgument if max_message_bytes is below 1 KiB, or if a message of this size does
// not fit gRPC's quota, so that it could never be received. Requires that `options` are
// WithMemoryShares.
absl::Status CheckMessageSize(const GrpcOptions& options);

// Returns the number of threads that read messages: half of the machine's, so that steps get the
// other half. It is at least two, so that one slow text does not stop all others.
int PreparationThreads();

// Returns the most bytes that messages may take while they are parsed and validated.
int64_t ParsedBytes(const ServerOptions& options);

// Returns the most calls that gRPC may keep at a time, at all addresses together. Requires that
// `options` are WithMemoryShares.
int64_t MaxLiveCalls(const ServerOptions& options);

// Returns the limits without models, for `models` queues of `queue_bytes` each. `process_bytes` is
// the memory of the process before it serves. Requires that `options` are WithMemoryShares.
MemoryLimits ComputeMemoryLimits(const ServerOptions& options, int64_t queue_bytes, int64_t models,
                                 int64_t process_bytes);

// Returns ResourceExhausted if weights of `weight_bytes` do not fit on a CPU next to `limits`, the
// limits without models. The message states how many bytes are missing.
absl::Status CheckWeights(const MemoryLimits& limits, int64_t weight_bytes);

// Adds the memory that the models take on the host; on a GPU this is only pinned memory.
void AddModels(std::span<const ModelStats> models, bool on_cpu, MemoryLimits* limits);

}  // namespace sluice
