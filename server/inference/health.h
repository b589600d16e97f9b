// The readiness of the server, and grpc.health.v1.Health, which reports it.
//
// Thread-safe. gRPC's own health service is not used, because its watches would delay a graceful
// shutdown until the deadline: they must be ended first.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "proto/health.grpc.pb.h"

namespace sluice {

inline constexpr std::string_view kReadinessService = "sluice.readiness";
inline constexpr std::string_view kLivenessService = "sluice.liveness";

class Health final : public grpc::health::v1::Health::CallbackService {
 public:
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

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

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
};

}  // namespace sluice
