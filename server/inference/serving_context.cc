#include "server/inference/serving_context.h"

#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "server/common/memory_limits.h"

namespace sluice {
namespace {

// The numbers of loads and lookups that may wait. Each kind runs one at a time, so longer queues
// would only mean longer waits; callers should try again later.
constexpr size_t kMaxWaitingLoads = 8;
constexpr size_t kMaxWaitingLookups = 64;

std::string DrawInstance() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

}  // namespace

ServingContext::ServingContext(const ServerOptions& options, std::string daemon_version,
                               const EngineOptions& for_engine, const ServerParts& parts)
    : ServerParts(parts),
      version(std::move(daemon_version)),
      instance(DrawInstance()),
      engine_options(for_engine),
      transfers(std::chrono::microseconds(options.grpc.transfer_timeout_us),
                "server.grpc.transfer_timeout", clock, options.grpc.max_calls),
      idle_streams(std::chrono::microseconds(options.grpc.stream_idle_timeout_us),
                   "server.grpc.stream_idle_timeout", clock, options.grpc.max_calls),
      health(&transfers),
      parsed(ParsedBytes(options)),
      unread(options.grpc.max_unread_bytes),
      overload({.limit = options.memory.limit_bytes,
                .resident = resident,
                .cut = [this](int64_t bytes) { transfers.CutLargest(bytes); }}),
      models(engine, log, options.memory.copy_weights ? FileAccess::kCopy : FileAccess::kMap),
      loads(std::in_place, kMaxWaitingLoads),
      lookups(kMaxWaitingLookups) {}

}  // namespace sluice
