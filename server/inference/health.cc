#include "server/inference/health.h"

#include <optional>
#include <string>

#include "server/common/status.h"

namespace sluice {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// One watch. health->mu_ guards all its members. A watcher is in watchers_ until Finish is called.
// It deletes itself in OnDone, which gRPC calls after that.
class Health::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(Health* health, std::string service) : health_(health), service_(std::move(service)) {
    MutexLock lock(&health_->mu_);
    health_->watchers_.insert(this);
    if (health_->ended_) {
      EndLocked(absl::UnavailableError("shutting down"));
    } else {
      NotifyLocked();
    }
  }

  // Writes the present status, unless that was the last status told or a write is in progress.
  void NotifyLocked() {
    const Health::Status now = health_->StatusOf(service_);
    if (writing_ || told_ == now) return;
    told_ = now;
    writing_ = true;
    response_.set_status(now);
    StartWrite(&response_);
  }

  void EndLocked(const absl::Status& status) {
    if (health_->watchers_.erase(this) == 1) Finish(ToGrpc(status));
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&health_->mu_);
    writing_ = false;
    if (!ok) return EndLocked(absl::CancelledError("the watcher left"));
    if (health_->watchers_.contains(this)) NotifyLocked();
  }

  void OnCancel() override {
    MutexLock lock(&health_->mu_);
    EndLocked(absl::CancelledError("the watcher left"));
  }

  void OnDone() override { delete this; }

 private:
  Health* const health_;
  const std::string service_;
  HealthCheckResponse response_;  // belongs to the write in progress
  bool writing_ = false;
  std::optional<Health::Status> told_;
};

Health::Status Health::StatusOf(std::string_view service) const {
  const bool liveness = service == kLivenessService;
  if (!liveness && !service.empty() && service != kReadinessService) {
    return HealthCheckResponse::SERVICE_UNKNOWN;
  }
  const bool well = liveness ? !hung_ : ReadyLocked();
  return well ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

void Health::Set(bool* flag, bool value) {
  MutexLock lock(&mu_);
  *flag = value;
  for (Watcher* watcher : watchers_) watcher->NotifyLocked();
}

void Health::SetReady(bool ready) { Set(&ready_, ready); }
void Health::SetFailing(bool failing) { Set(&failing_, failing); }
void Health::SetHung() { Set(&hung_, true); }

bool Health::ready() const {
  MutexLock lock(&mu_);
  return ReadyLocked();
}

bool Health::live() const {
  MutexLock lock(&mu_);
  return !hung_;
}

void Health::EndWatches() {
  MutexLock lock(&mu_);
  ended_ = true;
  while (!watchers_.empty()) {
    (*watchers_.begin())->EndLocked(absl::UnavailableError("shutting down"));
  }
}

grpc::ServerUnaryReactor* Health::Check(grpc::CallbackServerContext* context,
                                        const HealthCheckRequest* request,
                                        HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  MutexLock lock(&mu_);
  const Status status = StatusOf(request->service());
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    reactor->Finish(
        ToGrpc(absl::NotFoundError("unknown service " + Printable(request->service()))));
  } else {
    response->set_status(status);
    reactor->Finish(grpc::Status::OK);
  }
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* Health::Watch(grpc::CallbackServerContext* context,
                                                             const HealthCheckRequest* request) {
  return new Watcher(this, request->service());
}

}  // namespace sluice
