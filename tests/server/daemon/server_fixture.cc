#include "tests/server/daemon/server_fixture.h"

#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "server/observe/engine_metrics.h"
#include "tests/server/observe/scrape.h"
#include "tests/server/protocol/messages.h"

namespace sluice::testing {
namespace {

// The limit of every wait. A wait ends with its event, so only a failing test waits this long.
constexpr std::chrono::minutes kPatience(3);

}  // namespace

TestDaemon::Options::Options() : model(TextModel()) {
  server.grpc.address = "127.0.0.1:0";
  server.metrics.address = "";
  server.admin.address = "";
  server.admin.on_grpc_address = true;
  server.log.level = "error";
  server.lifecycle.drain_delay_us = 0;
  backend.activation_bytes_per_token = 4;
}

TestDaemon::Options TestDaemon::Options::WithHttp() {
  Options options;
  options.server.metrics.address = "127.0.0.1:0";
  return options;
}

TestDaemon::TestDaemon(const Options& options)
    : backend_(options.backend),
      log_(*Log::Create(options.server.log)),
      metrics_(backend_.info().device, "1.2.3"),
      access_(options.server.log.access_sample, log_.get()),
      observers_({&metrics_, &statistics_, &activity_}),
      engine_(Engine::Create(options.engine, &backend_, Clock::Real(), &observers_)) {
  auto server = Server::Start(options.server, "1.2.3", options.engine,
                              {engine_.get(), Clock::Real(), &metrics_, &statistics_, &activity_,
                               &replies_, log_.get(), &access_, options.resident});
  SLUICE_CHECK(server.ok());
  server_ = *std::move(server);
  SLUICE_CHECK(engine_->Serve(options.model).ok());
  backend_.ForgetBatches();
  server_->SetReady();
}

std::string TestDaemon::address() const { return absl::StrCat("127.0.0.1:", server_->grpc_port()); }

std::shared_ptr<grpc::Channel> TestDaemon::Channel(const grpc::ChannelArguments& arguments) const {
  grpc::ChannelArguments own = arguments;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // gives the channel its own connection
  own.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), own);
}

std::unique_ptr<inference::GRPCInferenceService::Stub> TestDaemon::Stub() const {
  return inference::GRPCInferenceService::NewStub(Channel());
}

std::unique_ptr<inference::GRPCInferenceService::Stub> TestDaemon::ConnectedStub() const {
  const auto channel = Channel();
  EXPECT_TRUE(channel->WaitForConnected(std::chrono::system_clock::now() + kPatience));
  return inference::GRPCInferenceService::NewStub(channel);
}

grpc::Status TestDaemon::Infer(const inference::ModelInferRequest& request,
                               inference::ModelInferResponse* response,
                               grpc::ClientContext* context) const {
  grpc::ClientContext own;
  own.set_wait_for_ready(true);  // gRPC 1.51 sometimes fails one of many connections
  return Stub()->ModelInfer(context == nullptr ? &own : context, request, response);
}

std::map<std::string, double> TestDaemon::Scrape() const {
  if (server_ == nullptr || server_->http_port() == 0) {
    return ParseSamples(metrics_.Render(EngineMetrics(*engine_, log_->dropped())));
  }
  const HttpAnswer answer = HttpGet(server_->http_port(), "/metrics");
  EXPECT_EQ(answer.status, 200);
  return ParseSamples(answer.body);
}

double TestDaemon::Metric(const std::string& name, const std::string& label) const {
  return SumOf(Scrape(), name, label);
}

void TestDaemon::AwaitMetric(const std::string& name, double value,
                             const std::string& label) const {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  for (double last = Metric(name, label); last != value; last = Metric(name, label)) {
    if (std::chrono::steady_clock::now() > give_up) {
      FAIL() << name << " {" << label << "} is " << last << ", expected " << value;
    }
    std::this_thread::yield();
  }
}

void TestDaemon::ExpectBalanced() const {
  // The metrics count the end of a request slightly later than the engine's own counts.
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  std::map<std::string, double> samples;
  double admitted = 0, ended = 0;
  do {
    samples = Scrape();
    admitted = SumOf(samples, "sluice_admitted_total");
    ended = SumOf(samples, "sluice_requests_total");
  } while (ended != admitted && std::chrono::steady_clock::now() < give_up);
  EXPECT_EQ(ended, admitted);
  EXPECT_EQ(SumOf(samples, "sluice_requests_waiting"), 0);
  EXPECT_EQ(SumOf(samples, "sluice_requests_running"), 0);
  EXPECT_EQ(SumOf(samples, "sluice_queued_tokens"), 0);
}

grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                     const std::string& bytes, grpc::ClientContext* context) {
  grpc::GenericStub stub(channel);
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(context, path, grpc::StubOptions(), &request, &response,
                 [&done](grpc::Status status) { done.set_value(std::move(status)); });
  return done.get_future().get();
}

std::string Trailer(const grpc::ClientContext& context, const std::string& name) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(name);
  return found == trailers.end() ? "" : std::string(found->second.data(), found->second.size());
}

}  // namespace sluice::testing
