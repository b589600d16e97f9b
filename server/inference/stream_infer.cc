#include "server/inference/stream_infer.h"

#include <memory>

#include "server/inference/stream_session.h"

namespace sluice {
namespace {

// The reactor of a stream. gRPC owns it until its OnDone.
class StreamInfer final : public StreamSession::Reactor {
 public:
  StreamInfer(InferenceFrontend* frontend, TransferWatch* idle,
              grpc::CallbackServerContext* context)
      : session_(std::make_shared<StreamSession>(frontend, idle, context, this)) {
    session_->Start();
  }

  void OnReadDone(bool ok) override { session_->OnRead(ok); }
  void OnWriteDone(bool ok) override { session_->OnWritten(ok); }
  void OnCancel() override { session_->OnCancel(); }
  void OnDone() override {
    session_->OnDone();
    delete this;
  }

 private:
  const std::shared_ptr<StreamSession> session_;
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartStreamInfer(
    InferenceFrontend* frontend, TransferWatch* idle, grpc::CallbackServerContext* context) {
  return new StreamInfer(frontend, idle, context);
}

}  // namespace sluice
