#include "server/stream_infer.h"

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/infer_sink.h"
#include "server/status.h"
#include "server/wire.h"

namespace sluice {
namespace {

using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

class StreamSession : public std::enable_shared_from_this<StreamSession> {
 public:
  using Ticket = uint64_t;  // of a request within this stream

  StreamSession(Edge* edge, grpc::CallbackServerContext* context, Reactor* reactor)
      : edge_(edge),
        context_(context),
        deadline_(edge->Arrive(*context).rpc_deadline),
        reactor_(reactor) {}

  void Start();
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnCancel();

  // From the sinks: the response of a request that was admitted.
  void Answer(Ticket ticket, const absl::Status& status, const std::string& id,
              inference::ModelInferResponse response);

 private:
  absl::Status Submit(Ticket ticket, const CallFacts& arrival, std::string* id);
  void Admitted(Ticket ticket, RequestId id);

  void Enqueue(const grpc::ByteBuffer& response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReadMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishIfComplete() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Edge* const edge_;
  grpc::CallbackServerContext* const context_;
  const MonoTime deadline_;
  grpc::ByteBuffer incoming_;  // belongs to the read in progress

  Mutex mu_;
  Reactor* reactor_ ABSL_GUARDED_BY(mu_);  // nullptr once Finish was called
  // Requests in progress; the engine's id is 0 until Submit returned.
  absl::flat_hash_map<Ticket, RequestId> running_ ABSL_GUARDED_BY(mu_);
  std::deque<grpc::ByteBuffer> outgoing_ ABSL_GUARDED_BY(mu_);  // the front is being written
  Ticket next_ticket_ ABSL_GUARDED_BY(mu_) = 0;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mu_) = false;
};

class StreamSink final : public InferSink {
 public:
  StreamSink(ReplySpec spec, ReplyThread* replies, std::shared_ptr<StreamSession> session,
             StreamSession::Ticket ticket)
      : InferSink(std::move(spec), replies), session_(std::move(session)), ticket_(ticket) {}

 private:
  void Answer(const absl::Status& status, inference::ModelInferResponse response) override {
    session_->Answer(ticket_, status, spec().id, std::move(response));
  }

  const std::shared_ptr<StreamSession> session_;
  const StreamSession::Ticket ticket_;
};

class StreamInfer final : public Reactor {
 public:
  StreamInfer(Edge* edge, grpc::CallbackServerContext* context)
      : session_(std::make_shared<StreamSession>(edge, context, this)) {
    session_->Start();
  }

  void OnReadDone(bool ok) override { session_->OnRead(ok); }
  void OnWriteDone(bool ok) override { session_->OnWritten(ok); }
  void OnCancel() override { session_->OnCancel(); }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<StreamSession> session_;
};

grpc::ByteBuffer MakeResponse(const absl::Status& status, const std::string& id,
                              inference::ModelInferResponse infer_response) {
  inference::ModelStreamInferResponse response;
  if (!status.ok()) {
    response.set_error_message(std::string(status.message()));
    infer_response.set_id(id);
  }
  (*infer_response.mutable_parameters())["triton_final_response"].set_bool_param(true);
  *response.mutable_infer_response() = std::move(infer_response);
  grpc::ByteBuffer bytes;
  const absl::Status serialized = Serialize(response, &bytes);
  // Only too large a response fails, and its error is small.
  if (!serialized.ok()) return MakeResponse(serialized, id, {});
  return bytes;
}

void StreamSession::Start() {
  MutexLock lock(&mu_);
  ReadMore();
}

void StreamSession::OnRead(bool ok) {
  Ticket ticket;
  {
    MutexLock lock(&mu_);
    if (!ok) {
      reading_ = false;
      half_closed_ = true;
      return FinishIfComplete();
    }
    if (reactor_ == nullptr) return;
    ticket = next_ticket_++;
    running_.emplace(ticket, 0);
  }
  std::string id;
  const absl::Status status = Submit(ticket, edge_->Arrive(*context_), &id);
  if (!status.ok()) Answer(ticket, status, id, {});
  MutexLock lock(&mu_);
  reading_ = false;  // not before incoming_ was parsed: a write that ends meanwhile reads on
  ReadMore();
}

absl::Status StreamSession::Submit(Ticket ticket, const CallFacts& arrival, std::string* id) {
  inference::ModelInferRequest message;
  if (absl::Status status = Parse(incoming_, &message); !status.ok()) {
    edge_->Refuse(status);
    return status;
  }
  *id = message.id();
  const auto make_sink = [&](ReplySpec spec) {
    return std::make_shared<StreamSink>(std::move(spec), edge_->replies(), shared_from_this(),
                                        ticket);
  };
  absl::StatusOr<RequestId> admitted = edge_->Submit(message, arrival, make_sink);
  if (admitted.ok()) Admitted(ticket, *admitted);
  return admitted.status();
}

void StreamSession::Admitted(Ticket ticket, RequestId id) {
  MutexLock lock(&mu_);
  const auto running = running_.find(ticket);
  if (running == running_.end()) return;  // answered already
  running->second = id;
  // The caller left while Submit ran, when GiveUp could not know the id.
  if (reactor_ == nullptr) edge_->GiveUp(id, deadline_).IgnoreError();
}

void StreamSession::Answer(Ticket ticket, const absl::Status& status, const std::string& id,
                           inference::ModelInferResponse response) {
  grpc::ByteBuffer bytes = MakeResponse(status, id, std::move(response));
  MutexLock lock(&mu_);
  running_.erase(ticket);
  Enqueue(bytes);
}

void StreamSession::Enqueue(const grpc::ByteBuffer& response) {
  if (reactor_ == nullptr) return;
  outgoing_.push_back(response);  // shares the slices; a ByteBuffer has no move
  if (outgoing_.size() == 1) reactor_->StartWrite(&outgoing_.front());
}

void StreamSession::OnWritten(bool ok) {
  MutexLock lock(&mu_);
  outgoing_.pop_front();
  if (!ok) return GiveUp();
  if (reactor_ == nullptr) return;
  if (!outgoing_.empty()) reactor_->StartWrite(&outgoing_.front());
  ReadMore();
  FinishIfComplete();
}

void StreamSession::ReadMore() {
  const size_t pipelined = running_.size() + outgoing_.size();
  if (reactor_ == nullptr || reading_ || half_closed_ || pipelined >= kMaxPipelined) return;
  reading_ = true;
  reactor_->StartRead(&incoming_);
}

void StreamSession::FinishIfComplete() {
  if (reactor_ == nullptr || !half_closed_ || !running_.empty() || !outgoing_.empty()) return;
  std::exchange(reactor_, nullptr)->Finish(grpc::Status::OK);
}

void StreamSession::OnCancel() {
  MutexLock lock(&mu_);
  GiveUp();
}

void StreamSession::GiveUp() {
  if (reactor_ == nullptr) return;
  absl::Status status = absl::CancelledError("cancelled by the caller");
  for (const auto& [ticket, id] : running_) {
    if (id != 0) status = edge_->GiveUp(id, deadline_);
  }
  std::exchange(reactor_, nullptr)->Finish(ToGrpc(status));
}

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartStreamInfer(
    Edge* edge, grpc::CallbackServerContext* context) {
  return new StreamInfer(edge, context);
}

}  // namespace sluice
