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

// The places for calls of operators, and for health checks, that wait for their messages.
constexpr int64_t kAdminWaits = 256;
constexpr int64_t kProbeWaits = 256;

// With admin.on_grpc_address, the services with the admin API also serve all inference.
int64_t AdminWaits(const ServerOptions& options) {
  return options.admin.on_grpc_address ? options.grpc.max_calls : kAdminWaits;
}

constexpr char kTooManyCalls[] =
    "too many calls wait for their messages, and this peer has the most of them; send each message "
    "with its call, or open fewer calls (server.grpc.max_calls)";
constexpr char kTooManyStreams[] =
    "too many streams are idle, and this peer has the most of them; close idle streams, or open "
    "fewer (server.grpc.max_calls)";

TransferWatch::Limit LimitOf(const char* listener, int64_t most, const char* full, RefusalLog* log,
                             Clock* clock) {
  return {.max_incoming = most,
          .full = full,
          .on_full = [=](const std::string& address, const std::string& caller) {
            log->Add(
                clock->Now(),
                {{"peer", address}, {"caller", caller}, {"listener", listener}, {"limit", most}});
          }};
}

}  // namespace

ServingContext::Waits::Waits(const char* listener, int64_t most, const GrpcOptions& options,
                             Clock* clock, Log* log)
    : too_many_calls("too many calls wait for their messages; ended one of the peer with the most",
                     log),
      too_many_streams("too many streams are idle; ended one of the peer with the most", log),
      transfers(std::chrono::microseconds(options.transfer_timeout_us),
                "server.grpc.transfer_timeout", clock,
                LimitOf(listener, most, kTooManyCalls, &too_many_calls, clock)),
      idle_streams(std::chrono::microseconds(options.stream_idle_timeout_us),
                   "server.grpc.stream_idle_timeout", clock,
                   LimitOf(listener, most, kTooManyStreams, &too_many_streams, clock)) {}

ServingContext::ServingContext(const ServerOptions& options, std::string daemon_version,
                               const EngineOptions& for_engine, const ServerParts& parts)
    : ServerParts(parts),
      version(std::move(daemon_version)),
      instance(DrawInstance()),
      engine_options(for_engine),
      inference("grpc", options.grpc.max_calls, options.grpc, clock, log),
      admin("admin", AdminWaits(options), options.grpc, clock, log),
      probes("health", kProbeWaits, options.grpc, clock, log),
      health(&probes.transfers),
      parsed(ParsedBytes(options)),
      unread(options.grpc.max_unread_bytes),
      overload({.limit = options.memory.limit_bytes,
                .resident = resident,
                .cut =
                    [this](int64_t bytes) {
                      admin.transfers.CutLargest(bytes - inference.transfers.CutLargest(bytes));
                    }}),
      models(engine, log, options.memory.copy_weights ? FileAccess::kCopy : FileAccess::kMap,
             interrupted),
      loads(std::in_place, kMaxWaitingLoads),
      lookups(kMaxWaitingLookups) {}

}  // namespace sluice
