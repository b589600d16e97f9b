// The readiness of the server, and grpc.health.v1.Health, which reports it.
//
// Thread-safe. gRPC's own health service is not used, because its watches would delay a graceful
// shutdown until the deadline: they must be ended first. Its methods are watched like those of
// inference, because every caller may use them: a message of a check has no more than
// kMaxHealthBytes, it arrives within the watch's patience, and a connection has a bounded number of
// watches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "proto/health.pb.h"
#include "server/net/grpc_1_51/streamed_unary.h"

namespace sluice {

inline constexpr std::string_view kReadinessService = "sluice.readiness";
inline constexpr std::string_view kLivenessService = "sluice.liveness";
inline constexpr int64_t kMaxHealthBytes = 1024;
inline constexpr int kMaxWatches = 16;  // of one connection

class Health final : public StreamedUnaryService {
 public:
  using Bytes = grpc::ByteBuffer;

  // `transfers` is not owned and outlives the calls.
  explicit Health(TransferWatch* transfers);

  // Sets the readiness, which begins as not ready. Watchers hear of each change that lasts.
  void SetReady(bool ready);
  // Returns whether SetReady(true) was called and nothing is wrong with the engine.
  bool ready() const;

  // Sets whether steps of the engine fail; while they do, the server is not ready. It begins as not
  // failing.
  void SetFailing(bool failing);
  // Makes the server neither live nor ready, permanently.
  void SetHung();
  bool live() const;

  // Ends all watches, present and future, with UNAVAILABLE.
  void EndWatches();

 private:
  class Watcher;
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context, const Bytes& request,
                                  Bytes* response);
  // Returns SERVICE_UNKNOWN for a name that is not served.
  Status StatusOf(std::string_view service) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Set(bool* flag, bool value);
  bool ReadyLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return ready_ && !failing_ && !hung_;
  }

  mutable Mutex mu_;
  bool ready_ ABSL_GUARDED_BY(mu_) = false;
  bool failing_ ABSL_GUARDED_BY(mu_) = false;
  bool hung_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<Watcher*> watchers_ ABSL_GUARDED_BY(mu_);  // not finished yet
  // The number of watches of each connection, by its peer, that gRPC has not ended.
  absl::flat_hash_map<std::string, int> watches_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
