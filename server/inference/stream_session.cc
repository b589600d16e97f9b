#include "server/inference/stream_session.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/calls/wire.h"
#include "server/common/callback_times.h"
#include "server/common/status.h"
#include "server/protocol/request/peek.h"

namespace sluice {
namespace {

using Event = CallbackTimes::Event;
constexpr char kMethod[] = "ModelStreamInfer";

// Returns the request's id without parsing the message, or an empty text if that is not possible.
std::string IdOf(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  if (!message.Dump(&slices).ok() || slices.empty()) return "";
  return PeekAtId({reinterpret_cast<const char*>(slices[0].begin()), slices[0].size()});
}

// The reactor of a stream. gRPC owns it until its OnDone.
class StreamInfer final : public StreamSession::Reactor {
 public:
  StreamInfer(const StreamSession::Parts& parts, std::string caller,
              grpc::CallbackServerContext* context)
      // Not make_shared: a timer's weak_ptr would keep the session's memory until its time.
      : session_(std::shared_ptr<StreamSession>(
            new StreamSession(parts, std::move(caller), context, this))) {
    session_->Start();
  }

  void OnReadDone(bool ok) override {
    const CallbackTimes::Scope scope(kMethod, Event::kMessage);
    session_->OnRead(ok);
  }
  void OnWriteDone(bool ok) override {
    const CallbackTimes::Scope scope(kMethod, Event::kWritten);
    session_->OnWritten(ok);
  }
  void OnCancel() override {
    const CallbackTimes::Scope scope(kMethod, Event::kCancelled);
    session_->OnCancel();
  }
  void OnDone() override {
    const CallbackTimes::Scope scope(kMethod, Event::kEnd);
    session_->OnDone();
    delete this;
  }

 private:
  const std::shared_ptr<StreamSession> session_;
};

}  // namespace

StreamSession::Reactor* StartStreamInfer(const StreamSession::Parts& parts, std::string caller,
                                         grpc::CallbackServerContext* context) {
  return new StreamInfer(parts, std::move(caller), context);
}

void StreamSession::Start() {
  MutexLock lock(&mu_);
  ReadMore();
}

void StreamSession::OnRead(bool ok) {
  Ticket ticket;
  {
    MutexLock lock(&mu_);
    EndRest();
    if (!ok) {
      reading_ = false;
      half_closed_ = true;
      return FinishIfComplete();
    }
    if (reactor_ == nullptr) return;
    ticket = next_ticket_++;
    running_.emplace(ticket, Running{});
  }
  CallContext call = frontend_->Arrive(*context_);
  absl::Status entered = Identify(&call);
  if (entered.ok()) entered = frontend_->Enter(&call);
  if (!entered.ok()) return RefuseRead(ticket, entered, IdOf(incoming_));
  if (InferenceFrontend::IsQuick(incoming_)) return Prepare(ticket, std::move(call));
  const auto self = shared_from_this();
  const auto check = [self]() -> absl::Status {
    MutexLock lock(&self->mu_);
    return self->reactor_ == nullptr ? absl::CancelledError("cancelled by the caller")
                                     : absl::OkStatus();
  };
  const absl::Status posted =
      frontend_->PrepareLater(call, check, [self, ticket, call] { self->Prepare(ticket, call); });
  if (!posted.ok()) RefuseRead(ticket, posted, "");
}

absl::Status StreamSession::Identify(CallContext* call) {
  if (callers_ == nullptr) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(call->caller, callers_->Identify(*context_));
  return absl::OkStatus();
}

void StreamSession::Prepare(Ticket ticket, CallContext call) {
  std::string id;
  const absl::Status status = Submit(ticket, std::move(call), &id);
  if (!status.ok()) return RefuseRead(ticket, status, std::move(id));
  EndRead();
}

void StreamSession::RefuseRead(Ticket ticket, const absl::Status& status, std::string id) {
  const auto refused = std::make_shared<RequestSpec>();
  refused->id = std::move(id);
  std::make_shared<StreamSink>(ReplySpec{.request = refused}, replies_, shared_from_this(), ticket)
      ->OnDone(status, {}, {});
  EndRead();
}

void StreamSession::EndRead() {
  MutexLock lock(&mu_);
  // Set only after incoming_ is parsed, because the end of a response may start reading the next
  // message.
  reading_ = false;
  ReadMore();
}

absl::Status StreamSession::Submit(Ticket ticket, CallContext call, std::string* id) {
  inference::ModelInferRequest message;
  MemoryShare parsed;
  SLUICE_RETURN_IF_ERROR(frontend_->Read(incoming_, call, &message, &parsed));
  *id = message.id();
  const auto make_sink = [&](ReplySpec spec, MemoryShare unread) {
    Expect(ticket, spec.max_bytes);
    return std::make_shared<StreamSink>(std::move(spec), replies_, shared_from_this(), ticket,
                                        std::move(unread));
  };
  absl::StatusOr<RequestId> admitted = frontend_->Submit(message, std::move(call), make_sink);
  if (admitted.ok()) Admitted(ticket, *admitted);
  return admitted.status();
}

void StreamSession::Admitted(Ticket ticket, RequestId id) {
  MutexLock lock(&mu_);
  const auto running = running_.find(ticket);
  if (running == running_.end()) return;  // answered already
  running->second.id = id;
  // The caller left while Submit ran, when GiveUp did not have the id yet.
  if (reactor_ == nullptr) frontend_->GiveUp(id, deadline_).IgnoreError();
}

void StreamSession::Offer(std::shared_ptr<StreamSink> sink) {
  {
    MutexLock lock(&mu_);
    if (reactor_ == nullptr || !running_.contains(sink->ticket())) return;
    ready_.push_back(std::move(sink));
  }
  WriteNext();
}

absl::Duration StreamSession::Pushback() {
  MutexLock lock(&mu_);
  return reactor_ == nullptr ? absl::ZeroDuration() : frontend_->Pushback();
}

void StreamSession::Deliver() {
  Watch();
  WriteNext();
}

void StreamSession::WatchUntil(MonoTime time) {
  watch_until_ = time;
  replies_->PostAt(time, weak_from_this());
}

void StreamSession::Watch() {
  MutexLock lock(&mu_);
  // Without a reactor the frontend may have been destroyed, unless the call is not done: gRPC waits
  // for such calls.
  if (done_ || !watch_until_ || frontend_->Now() < *watch_until_) return;
  watch_until_.reset();
  if (stalled_) return context_->TryCancel();
  if (reactor_ == nullptr || !writing_since_) return;
  const MonoTime given_up = *writing_since_ + frontend_->stream_stall_timeout();
  if (frontend_->Now() < given_up) return WatchUntil(given_up);
  GiveUpStalled();
}

std::shared_ptr<StreamSink> StreamSession::ClaimWrite() {
  MutexLock lock(&mu_);
  if (reactor_ == nullptr || writing_ || ready_.empty()) return nullptr;
  writing_ = true;
  std::shared_ptr<StreamSink> sink = std::move(ready_.front());
  ready_.pop_front();
  return sink;
}

void StreamSession::WriteNext() {
  const std::shared_ptr<StreamSink> sink = ClaimWrite();
  if (sink != nullptr) StartWrite(sink, sink->Next());
}

void StreamSession::StartWrite(const std::shared_ptr<StreamSink>& sink,
                               const StreamSink::Response& response) {
  MutexLock lock(&mu_);
  if (reactor_ == nullptr) return;
  writing_sink_ = sink;
  outgoing_ = response.bytes;  // copies references to the slices; ByteBuffer has no move
  if (response.more_at_once) ready_.push_back(sink);
  if (response.last) Answered(sink->ticket());
  writing_since_ = frontend_->Now();
  if (!watch_until_) WatchUntil(*writing_since_ + frontend_->stream_stall_timeout());
  reactor_->StartWrite(&outgoing_);
  ReadMore();
}

void StreamSession::OnWritten(bool ok) {
  MutexLock lock(&mu_);
  writing_ = false;
  writing_since_.reset();
  writing_sink_.reset();
  outgoing_.Clear();
  if (!ok) return GiveUp();
  if (reactor_ == nullptr) return;
  // Responses are made on the reply thread.
  if (!ready_.empty()) replies_->Post(shared_from_this());
  FinishIfComplete();
  RestIfIdle();
}

// Adds the size that the reply of a request may have.
void StreamSession::Expect(Ticket ticket, int64_t reply_bytes) {
  MutexLock lock(&mu_);
  running_[ticket].reply_bytes = reply_bytes;
  reply_bytes_ += reply_bytes;
}

void StreamSession::Answered(Ticket ticket) {
  const auto running = running_.find(ticket);
  if (running == running_.end()) return;
  reply_bytes_ -= running->second.reply_bytes;
  running_.erase(running);
}

void StreamSession::ReadMore() {
  if (reactor_ == nullptr || reading_ || half_closed_) return;
  if (running_.size() >= kMaxPipelined || reply_bytes_ >= frontend_->max_reply_bytes()) return;
  reading_ = true;
  reactor_->StartRead(&incoming_);
  RestIfIdle();
}

void StreamSession::RestIfIdle() {
  if (reactor_ == nullptr || resting_ || !reading_ || writing_ || !running_.empty()) return;
  resting_ = true;
  idle_->BeginIncoming(context_->c_call(),
                       "no request was in progress and no complete message arrived",
                       {.address = address_, .caller = caller_}, &rest_);
}

void StreamSession::EndRest() {
  resting_ = false;
  idle_->End(&rest_);
}

void StreamSession::FinishIfComplete() {
  if (reactor_ == nullptr || !half_closed_ || !running_.empty() || writing_) return;
  std::exchange(reactor_, nullptr)->Finish(grpc::Status::OK);
}

void StreamSession::OnCancel() {
  MutexLock lock(&mu_);
  GiveUp();
}

void StreamSession::OnDone() {
  MutexLock lock(&mu_);
  EndRest();
  done_ = true;
}

absl::Status StreamSession::CancelAll() {
  absl::Status status = absl::CancelledError("cancelled by the caller");
  for (const auto& [ticket, running] : running_) {
    if (running.id != 0) status = frontend_->GiveUp(running.id, deadline_);
  }
  ready_.clear();
  return status;
}

void StreamSession::GiveUp() {
  if (reactor_ == nullptr) return;
  const absl::Status status = CancelAll();
  std::exchange(reactor_, nullptr)->Finish(ToGrpc(status));
}

void StreamSession::GiveUpStalled() {
  CancelAll().IgnoreError();
  stalled_ = true;
  WatchUntil(frontend_->Now() + frontend_->stream_stall_timeout());
  const absl::Duration pushback = frontend_->Pushback();
  const absl::Status status = ReasonError(
      Reason::kStreamStalled,
      absl::StrCat("the caller did not read a response for ",
                   absl::FormatDuration(absl::FromChrono(frontend_->stream_stall_timeout())),
                   " (server.grpc.stream_stall_timeout)"));
  std::exchange(reactor_, nullptr)->Finish(FinishStatus(status, pushback, context_));
}

}  // namespace sluice
