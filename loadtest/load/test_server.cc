#include "loadtest/load/test_server.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "loadtest/load/delay_line.h"
#include "proto/inference.grpc.pb.h"

namespace sluice::load {
namespace {

using grpc::ByteBuffer;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// ModelInfer handles bytes, because a null server must cost little; the stream handles messages,
// because it needs their ids.
using Base = inference::GRPCInferenceService::WithRawCallbackMethod_ModelInfer<
    inference::GRPCInferenceService::WithCallbackMethod_ModelStreamInfer<
        inference::GRPCInferenceService::Service>>;

inference::ModelInferResponse MakeAnswer(bool wrong) {
  inference::ModelInferResponse answer;
  answer.set_model_name("null");
  auto* output = answer.add_outputs();
  output->set_name("output_ids");
  output->set_datatype("INT32");
  output->add_shape(1);
  output->add_shape(1);
  answer.add_raw_output_contents(std::string(4, wrong ? 'x' : '\0'));
  return answer;
}

// The due time of an answer, and its kind.
struct Fate {
  bool refused = false;
  bool wrong = false;
  bool at_once = false;
  steady_clock::time_point due;
};

class Model {
 public:
  explicit Model(const TestServerOptions& options) : options_(options) {}

  Fate OnRequest() {
    const auto now = steady_clock::now();
    const MutexLock lock(&mu_);
    if (requests_++ == 0) first_ = now;
    Fate fate;
    fate.due = now + options_.delay;
    if (options_.service_time.count() > 0) {
      const auto waiting = (busy_until_ - now) / options_.service_time;
      fate.refused = options_.queue > 0 && waiting >= options_.queue;
      if (fate.refused) {
        fate.at_once = true;
        return fate;
      }
      busy_until_ = std::max(busy_until_, now) + options_.service_time;
      fate.due = busy_until_ + options_.delay;
    }
    const auto stall_begin = first_ + options_.stall_after;
    const auto stall_end = stall_begin + options_.stall;
    if (fate.due >= stall_begin && fate.due < stall_end) fate.due = stall_end;
    fate.wrong = options_.wrong_every > 0 && requests_ % options_.wrong_every == 0;
    fate.at_once = fate.due <= now;
    return fate;
  }

  int64_t requests() const {
    const MutexLock lock(&mu_);
    return requests_;
  }

 private:
  const TestServerOptions options_;
  mutable Mutex mu_;
  int64_t requests_ ABSL_GUARDED_BY(mu_) = 0;
  steady_clock::time_point first_ ABSL_GUARDED_BY(mu_);
  steady_clock::time_point busy_until_ ABSL_GUARDED_BY(mu_);
};

grpc::Status Refusal() { return {grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full"}; }

class StreamReactor final : public grpc::ServerBidiReactor<inference::ModelInferRequest,
                                                           inference::ModelStreamInferResponse> {
 public:
  StreamReactor(Model* model, DelayLine* line) : model_(*model), line_(*line) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      const MutexLock lock(&mu_);
      reads_ended_ = true;
      MaybeFinish();
      return;
    }
    const Fate fate = model_.OnRequest();
    inference::ModelStreamInferResponse response;
    if (fate.refused) {
      response.set_error_message("the queue is full");
      auto* parameters = response.mutable_infer_response()->mutable_parameters();
      (*parameters)["error_code"].set_string_param("RESOURCE_EXHAUSTED");
    } else {
      *response.mutable_infer_response() = MakeAnswer(fate.wrong);
    }
    response.mutable_infer_response()->set_id(request_.id());
    {
      const MutexLock lock(&mu_);
      ++unanswered_;
    }
    line_.At(fate.due, [this, response = std::move(response)] { Answer(response); });
    StartRead(&request_);
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(&mu_);
    writes_.pop_front();
    --unanswered_;
    if (!ok) {
      unanswered_ -= std::ssize(writes_);
      writes_.clear();
    }
    if (!writes_.empty()) StartWrite(&writes_.front());
    MaybeFinish();
  }

  void OnDone() override { delete this; }

 private:
  void Answer(const inference::ModelStreamInferResponse& response) {
    const MutexLock lock(&mu_);
    writes_.push_back(response);
    if (writes_.size() == 1) StartWrite(&writes_.front());
  }

  void MaybeFinish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (reads_ended_ && unanswered_ == 0) Finish(grpc::Status::OK);
  }

  Model& model_;
  DelayLine& line_;
  inference::ModelInferRequest request_;
  Mutex mu_;
  std::deque<inference::ModelStreamInferResponse> writes_ ABSL_GUARDED_BY(mu_);
  int64_t unanswered_ ABSL_GUARDED_BY(mu_) = 0;  // requests read whose answers are not written
  bool reads_ended_ ABSL_GUARDED_BY(mu_) = false;
};

class Service final : public Base {
 public:
  Service(Model* model, DelayLine* line) : model_(*model), line_(*line) {
    right_ = ToSlice(MakeAnswer(false));
    wrong_ = ToSlice(MakeAnswer(true));
  }

  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context, const ByteBuffer*,
                                       ByteBuffer* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const Fate fate = model_.OnRequest();
    if (!fate.refused) *response = ByteBuffer(fate.wrong ? &wrong_ : &right_, 1);
    if (fate.at_once) {
      reactor->Finish(fate.refused ? Refusal() : grpc::Status::OK);
    } else {
      line_.At(fate.due, [reactor] { reactor->Finish(grpc::Status::OK); });
    }
    return reactor;
  }

  grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse>*
  ModelStreamInfer(grpc::CallbackServerContext*) override {
    return new StreamReactor(&model_, &line_);
  }

  grpc::Status ServerMetadata(grpc::ServerContext*, const inference::ServerMetadataRequest*,
                              inference::ServerMetadataResponse* response) override {
    response->set_name("sluice-load null-server");
    return grpc::Status::OK;
  }

 private:
  static grpc::Slice ToSlice(const inference::ModelInferResponse& answer) {
    return grpc::Slice(answer.SerializeAsString());
  }

  Model& model_;
  DelayLine& line_;
  grpc::Slice right_, wrong_;
};

class RunningServer final : public TestServer {
 public:
  explicit RunningServer(const TestServerOptions& options)
      : model_(options), service_(&model_, &line_) {
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort(options.address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    host_ = options.address.substr(0, options.address.rfind(':'));
  }
  ~RunningServer() override {
    line_.Hurry();  // because a shutdown waits for all answers
    if (server_) server_->Shutdown();
  }

  bool listening() const { return server_ != nullptr && port_ != 0; }
  std::string address() const override { return absl::StrCat(host_, ":", port_); }
  int64_t requests() const override { return model_.requests(); }

 private:
  Model model_;
  DelayLine line_;
  Service service_;
  std::string host_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TestServer>> TestServer::Start(const TestServerOptions& options) {
  auto server = std::make_unique<RunningServer>(options);
  if (server->listening()) return server;
  return absl::UnavailableError(absl::StrCat("cannot listen on ", options.address));
}

}  // namespace sluice::load
