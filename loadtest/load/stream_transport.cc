#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <atomic>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "client/stream_error.h"
#include "loadtest/load/transport.h"

namespace sluice::load {
namespace {

constexpr char kStreamMethod[] = "/inference.GRPCInferenceService/ModelStreamInfer";

// Returns the request with an id. Fields of a message may be in any order, so the id is appended
// without serialising the message again.
grpc::ByteBuffer WithId(const grpc::Slice& request, int64_t call) {
  constexpr char kTagOfId = (3 << 3) | 2;
  const std::string id = absl::StrCat(call);
  std::string field = {kTagOfId, static_cast<char>(id.size())};
  field += id;
  const grpc::Slice slices[] = {request, grpc::Slice(field)};
  return {slices, 2};
}

bool IsFinal(const inference::ModelInferResponse& response) {
  const auto found = response.parameters().find("triton_final_response");
  return found == response.parameters().end() || found->second.bool_param();
}

// One stream. Any thread may write, so the call is held until its reads have ended.
class Stream final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Stream(const std::shared_ptr<grpc::Channel>& channel, SystemTime until, CallSink* sink)
      : sink_(sink), stub_(channel) {
    context_.set_deadline(until);
    stub_.PrepareBidiStreamingCall(&context_, kStreamMethod, grpc::StubOptions(), this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  ~Stream() override {
    const MutexLock lock(&mu_);
    while (!pending_.empty()) changed_.Wait(&mu_);
    closing_ = true;
    if (writes_.empty() && !reads_ended_) StartWritesDone();
    while (!done_) changed_.Wait(&mu_);
  }

  void Send(int64_t call, const grpc::Slice& request) {
    Answer refusal;
    {
      const MutexLock lock(&mu_);
      if (!reads_ended_) {
        pending_.insert(call);
        writes_.push_back(WithId(request, call));
        if (writes_.size() == 1) StartWrite(&writes_.front());
        return;
      }
      refusal.code = done_ ? end_.error_code() : grpc::StatusCode::UNAVAILABLE;
      refusal.message = done_ ? end_.error_message() : "the stream is ending";
    }
    sink_->OnAnswer(call, refusal);
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(&mu_);
    writes_.pop_front();
    if (!ok || reads_ended_) return;
    if (!writes_.empty()) {
      StartWrite(&writes_.front());
    } else if (closing_) {
      StartWritesDone();
    }
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      Read();
      StartRead(&incoming_);
      return;
    }
    {
      const MutexLock lock(&mu_);
      reads_ended_ = true;
    }
    RemoveHold();
  }

  void OnDone(const grpc::Status& status) override {
    absl::flat_hash_set<int64_t> unanswered;
    {
      const MutexLock lock(&mu_);
      end_ = status.ok()
                 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server ended the stream")
                 : status;
      unanswered.swap(pending_);
    }
    Answer answer;
    answer.code = end_.error_code();
    answer.message = end_.error_message();
    for (const int64_t call : unanswered) sink_->OnAnswer(call, answer);
    const MutexLock lock(&mu_);
    done_ = true;
    changed_.SignalAll();
  }

 private:
  void Read() {
    inference::ModelStreamInferResponse response;
    // Deserialising consumes the buffer, so that it is empty for the next read.
    if (!grpc::SerializationTraits<inference::ModelStreamInferResponse>::Deserialize(&incoming_,
                                                                                     &response)
             .ok()) {
      return;
    }
    int64_t call = 0;
    if (!absl::SimpleAtoi(response.infer_response().id(), &call)) return;
    Answer answer;
    const absl::Status status = client::StreamError(response);
    if (status.ok()) {
      if (!IsFinal(response.infer_response())) {
        sink_->OnPart(call);
        return;
      }
      answer.parsed = &response.infer_response();
    } else {
      answer.code = static_cast<grpc::StatusCode>(status.code());
      answer.message = response.error_message();
    }
    if (Forget(call)) sink_->OnAnswer(call, answer);
  }

  // Returns false for an id that is not pending, because a server must not answer twice.
  bool Forget(int64_t call) {
    const MutexLock lock(&mu_);
    const bool known = pending_.erase(call) > 0;
    if (pending_.empty()) changed_.SignalAll();
    return known;
  }

  CallSink* const sink_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_;  // used only by the reading side

  Mutex mu_;
  CondVar changed_;
  std::deque<grpc::ByteBuffer> writes_ ABSL_GUARDED_BY(mu_);  // the first is being written
  absl::flat_hash_set<int64_t> pending_ ABSL_GUARDED_BY(mu_);
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool reads_ended_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status end_;  // written once, before done_
};

class StreamTransport final : public Transport {
 public:
  StreamTransport(const Channels& channels, int streams, SystemTime until, CallSink* sink) {
    for (int i = 0; i < streams; ++i) {
      for (const auto& channel : channels) {
        streams_.push_back(std::make_unique<Stream>(channel, until, sink));
      }
    }
  }

  void Send(int64_t call, const grpc::Slice& request,
            std::optional<SystemTime> /*deadline*/) override {
    streams_[next_.fetch_add(1) % streams_.size()]->Send(call, request);
  }

 private:
  std::vector<std::unique_ptr<Stream>> streams_;
  std::atomic<uint64_t> next_{0};
};

}  // namespace

std::unique_ptr<Transport> MakeStreamTransport(const Channels& channels, int streams,
                                               SystemTime until, CallSink* sink) {
  return std::make_unique<StreamTransport>(channels, streams, until, sink);
}

}  // namespace sluice::load
