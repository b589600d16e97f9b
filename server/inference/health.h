// The readiness of the server, and grpc.health.v1.Health, which reports it.
//
// Thread-safe. gRPC's own health service is not used: its watches would delay a graceful shutdown
// until the deadline, because they must be ended first. The methods have limits as inference has,
// because every caller may use them: a message has at most kMaxHealthBytes and must arrive within
// the patience of the TransferWatch, and a connection has a limited number of watches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "proto/health.pb.h"
#include "server/net/grpc_1_51/streamed_unary.h"

namespace sluice {

inline constexpr std::string_view kReadinessService = "sluice.readiness";
inline constexpr std::string_view kLivenessService = "sluice.liveness";
inline constexpr int64_t kMaxHealthBytes = 1024;
inline constexpr int kMaxWatches = 16;  // per connection

class Health final : public StreamedUnaryService {
 public:
  using Bytes = grpc::ByteBuffer;

  // `transfers` is not owned and outlives the calls.
  explicit Health(TransferWatch* transfers);

  // Sets the readiness, which is initially false. Watchers are notified of each change that lasts.
  void SetReady(bool ready);
  // Returns whether the last call of SetReady was SetReady(true) and the engine does not hang. The
  // daemon then manages models, even if their steps fail.
  bool running() const;
  // Returns OK if the daemon is running, and Unavailable otherwise.
  absl::Status CheckRunning() const;
  // Returns whether the daemon is running, no steps are failing and it is not without models.
  bool ready() const;
  // Returns whether the daemon is running and steps are failing.
  bool failing() const;

  // Sets whether steps of the engine are failing. While they fail, the server is not ready.
  // Initially false.
  void SetFailing(bool failing);
  // Sets whether the daemon has no model to serve although it should. It is then not ready.
  // Initially false.
  void SetWithoutModels(bool without);
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
  bool RunningLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return ready_ && !hung_; }
  bool ReadyLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return RunningLocked() && !failing_ && !without_models_;
  }

  mutable Mutex mu_;
  bool ready_ ABSL_GUARDED_BY(mu_) = false;
  bool failing_ ABSL_GUARDED_BY(mu_) = false;
  bool hung_ ABSL_GUARDED_BY(mu_) = false;
  bool without_models_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<Watcher*> watchers_ ABSL_GUARDED_BY(mu_);  // not finished yet
  // The number of watches per connection, by peer, that gRPC has not ended.
  absl::flat_hash_map<std::string, int> watches_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
