#include "server/inference/stream_infer.h"

#include <memory>

#include "server/common/callback_times.h"
#include "server/inference/stream_session.h"

namespace sluice {
namespace {

using Event = CallbackTimes::Event;
constexpr char kMethod[] = "ModelStreamInfer";

// The reactor of a stream. gRPC owns it until its OnDone.
class StreamInfer final : public StreamSession::Reactor {
 public:
  StreamInfer(InferenceFrontend* frontend, TransferWatch* idle,
              grpc::CallbackServerContext* context)
      : session_(std::make_shared<StreamSession>(frontend, idle, context, this)) {
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

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartStreamInfer(
    InferenceFrontend* frontend, TransferWatch* idle, grpc::CallbackServerContext* context) {
  const CallbackTimes::Scope scope(kMethod, Event::kBegin);
  return new StreamInfer(frontend, idle, context);
}

}  // namespace sluice
