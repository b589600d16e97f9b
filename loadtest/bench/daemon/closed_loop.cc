#include "loadtest/bench/daemon/closed_loop.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace sluice::loadtest {
namespace {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, int number) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // Channels of equal arguments would share one connection.
  arguments.SetInt("sluice.channel", number);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

std::string ToString(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return "";
  std::string bytes;
  bytes.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

class Loop {
 public:
  Loop(const ClosedLoopOptions& options, absl::FunctionRef<std::string(int64_t)> request,
       absl::FunctionRef<void(const std::string&)> on_response)
      : options_(options), request_(request), on_response_(on_response) {
    for (int i = 0; i < options.channels; ++i) {
      stubs_.push_back(std::make_unique<grpc::GenericStub>(MakeChannel(options.address, i)));
    }
  }

  ClosedLoopResult Run() {
    start_ = absl::Now();
    stop_ = start_ + options_.duration;
    running_ = options_.outstanding;
    for (int i = 0; i < options_.outstanding; ++i) Send(i % options_.channels);
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(
        +[](int* running) { return *running == 0; }, &running_));
    result_.elapsed = absl::Now() - start_;
    return std::move(result_);
  }

 private:
  struct Call {
    grpc::ClientContext context;
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
    absl::Time sent;
    int channel;
  };

  void Send(int channel) {
    auto* call = new Call;
    call->channel = channel;
    {
      absl::MutexLock lock(&mu_);
      const grpc::Slice slice(request_(next_++));
      call->request = grpc::ByteBuffer(&slice, 1);
    }
    call->sent = absl::Now();
    stubs_[channel]->UnaryCall(&call->context, options_.method, grpc::StubOptions(), &call->request,
                               &call->response,
                               [this, call](grpc::Status status) { Received(call, status); });
  }

  void Received(Call* call, const grpc::Status& status) {
    const std::unique_ptr<Call> owned(call);
    const absl::Time now = absl::Now();
    {
      absl::MutexLock lock(&mu_);
      if (status.ok()) {
        ++result_.calls;
        result_.latency_s.push_back(absl::ToDoubleSeconds(now - call->sent));
        on_response_(ToString(call->response));
      } else if (result_.errors++ == 0) {
        result_.first_error = absl::StrCat(status.error_code(), ": ", status.error_message());
      }
      // A failing server must not be hammered: one error ends this lane.
      if (now >= stop_ || !status.ok()) {
        --running_;
        return;
      }
    }
    Send(owned->channel);
  }

  const ClosedLoopOptions& options_;
  absl::FunctionRef<std::string(int64_t)> request_;
  absl::FunctionRef<void(const std::string&)> on_response_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  absl::Time start_, stop_;

  absl::Mutex mu_;
  int64_t next_ ABSL_GUARDED_BY(mu_) = 0;
  int running_ = 0;  // guarded by mu_
  ClosedLoopResult result_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::Status WaitForServer(const std::string& address, absl::Duration timeout) {
  const auto deadline = absl::ToChronoTime(absl::Now() + timeout);
  if (MakeChannel(address, -1)->WaitForConnected(deadline)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("no server at ", address, " within ", absl::FormatDuration(timeout)));
}

absl::StatusOr<ClosedLoopResult> RunClosedLoop(
    const ClosedLoopOptions& options, absl::FunctionRef<std::string(int64_t)> request,
    absl::FunctionRef<void(const std::string&)> on_response) {
  if (options.outstanding < 1 || options.channels < 1) {
    return absl::InvalidArgumentError("outstanding and channels must be at least 1");
  }
  ClosedLoopResult result = Loop(options, request, on_response).Run();
  if (result.errors > 0) {
    return absl::InternalError(
        absl::StrCat(result.errors, " calls failed, the first with ", result.first_error));
  }
  return result;
}

}  // namespace sluice::loadtest
