#include "server/inference/health.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/reason.h"
#include "server/calls/wire.h"
#include "server/common/callback_times.h"
#include "server/common/peer.h"
#include "server/common/status.h"

namespace sluice {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

namespace {

using Event = CallbackTimes::Event;
constexpr char kWatch[] = "Watch";

constexpr WireLimits kHealthLimits = {.parts = 4, .bytes = 4 * kMaxHealthBytes};

absl::Status ParseCheck(const grpc::ByteBuffer& bytes, HealthCheckRequest* request) {
  if (static_cast<int64_t>(bytes.Length()) > kMaxHealthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the message has ", bytes.Length(), " bytes; the limit is ", kMaxHealthBytes));
  }
  return Parse(bytes, request, kHealthLimits);
}

}  // namespace

// One watch. health->mu_ guards all members except the wait. A watcher is in watchers_ until Finish
// is called. It deletes itself in OnDone, which gRPC calls afterwards.
class Health::Watcher final : public grpc::ServerBidiReactor<Bytes, Bytes> {
 public:
  Watcher(Health* health, grpc::CallbackServerContext* context)
      : health_(health), peer_(context->peer()) {
    MutexLock lock(&health_->mu_);
    health_->watchers_.insert(this);
    if (++health_->watches_[peer_] > kMaxWatches) {
      EndLocked(absl::ResourceExhaustedError(
          absl::StrCat("a connection has at most ", kMaxWatches, " watches")));
      return;
    }
    if (health_->ended_) {
      EndLocked(absl::UnavailableError("the server is shutting down"));
      return;
    }
    health_->watch()->BeginIncoming(context->c_call(), "the watch's message did not arrive",
                                    {.address = AddressOf(peer_), .caller = {}}, &wait_);
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    const CallbackTimes::Scope scope(kWatch, Event::kMessage);
    health_->watch()->End(&wait_);
    HealthCheckRequest request;
    absl::Status status = ok ? ParseCheck(request_, &request)
                             : absl::InvalidArgumentError("the call ended without a message");
    MutexLock lock(&health_->mu_);
    if (!status.ok()) return EndLocked(status);
    service_ = std::move(*request.mutable_service());
    watching_ = true;
    NotifyLocked();
  }

  // Writes the current status, unless it was already sent or a write is in progress.
  void NotifyLocked() {
    if (!watching_ || writing_ || !health_->watchers_.contains(this)) return;
    const Health::Status now = health_->StatusOf(service_);
    if (sent_ == now) return;
    sent_ = now;
    writing_ = true;
    HealthCheckResponse response;
    response.set_status(now);
    Serialize(response, &response_).IgnoreError();  // it is small
    StartWrite(&response_);
  }

  void EndLocked(const absl::Status& status) {
    if (health_->watchers_.erase(this) == 1) Finish(ToGrpc(status));
  }

  void OnWriteDone(bool ok) override {
    const CallbackTimes::Scope scope(kWatch, Event::kWritten);
    MutexLock lock(&health_->mu_);
    writing_ = false;
    if (!ok) return EndLocked(absl::CancelledError("the watcher left"));
    NotifyLocked();
  }

  void OnCancel() override {
    const CallbackTimes::Scope scope(kWatch, Event::kCancelled);
    MutexLock lock(&health_->mu_);
    EndLocked(absl::CancelledError("the watcher left"));
  }

  void OnDone() override {
    const CallbackTimes::Scope scope(kWatch, Event::kEnd);
    health_->watch()->End(&wait_);
    {
      MutexLock lock(&health_->mu_);
      const auto watches = health_->watches_.find(peer_);
      if (--watches->second == 0) health_->watches_.erase(watches);
    }
    delete this;
  }

 private:
  Health* const health_;
  const std::string peer_;
  TransferWatch::Wait wait_;
  Bytes request_;
  std::string service_;
  Bytes response_;  // belongs to the write in progress
  bool watching_ = false;
  bool writing_ = false;
  std::optional<Health::Status> sent_;
};

Health::Health(TransferWatch* transfers)
    : StreamedUnaryService("grpc.health.v1.Health", transfers,
                           /*callers=*/nullptr) {
  Stream("Check", [this](auto* context, const Bytes* request, Bytes* response, const auto&) {
    return Check(context, *request, response);
  });
  StreamAnswers("Watch", [this](auto* context) { return new Watcher(this, context); });
}

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
void Health::SetWithoutModels(bool without) { Set(&without_models_, without); }
void Health::SetHung() { Set(&hung_, true); }

bool Health::running() const {
  MutexLock lock(&mu_);
  return RunningLocked();
}

absl::Status Health::CheckRunning() const {
  if (running()) return absl::OkStatus();
  return ReasonError(Reason::kUnavailable, "the daemon is starting, draining or about to exit");
}

bool Health::failing() const {
  MutexLock lock(&mu_);
  return RunningLocked() && failing_;
}

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
    (*watchers_.begin())->EndLocked(absl::UnavailableError("the server is shutting down"));
  }
}

grpc::ServerUnaryReactor* Health::Check(grpc::CallbackServerContext* context, const Bytes& request,
                                        Bytes* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  HealthCheckRequest message;
  absl::Status status = ParseCheck(request, &message);
  HealthCheckResponse answer;
  if (status.ok()) {
    MutexLock lock(&mu_);
    answer.set_status(StatusOf(message.service()));
  }
  if (answer.status() == HealthCheckResponse::SERVICE_UNKNOWN) {
    status = absl::NotFoundError("unknown service " + Printable(message.service()));
  }
  if (status.ok()) status = Serialize(answer, response);
  reactor->Finish(ToGrpc(status));
  return reactor;
}

}  // namespace sluice
