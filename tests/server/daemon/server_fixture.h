// A whole daemon in the test's process, with the real engine, a fake backend and real sockets.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/resident_memory.h"
#include "engine/engine.h"
#include "proto/health.grpc.pb.h"
#include "proto/inference.grpc.pb.h"
#include "server/calls/reply_thread.h"
#include "server/common/log.h"
#include "server/daemon/server.h"
#include "server/observe/access_log.h"
#include "server/observe/metrics.h"
#include "server/observe/observers.h"
#include "server/observe/recent_activity.h"
#include "server/observe/statistics.h"
#include "tests/support/fake_backend.h"

namespace sluice::testing {

class TestDaemon {
 public:
  struct Options {
    EngineOptions engine;
    ServerOptions server;
    FakeBackend::Options backend;
    std::function<int64_t()> resident = ResidentBytes;
    std::shared_ptr<const Model> model;  // TextModel()
    Options();  // gRPC on a free loopback port, no HTTP, only errors are logged
    static Options WithHttp();
  };
  explicit TestDaemon(const Options& options = Options());

  FakeBackend& backend() { return backend_; }
  Engine& engine() { return *engine_; }
  Server& server() { return *server_; }
  void StopServer() { server_.reset(); }

  std::string address() const;
  std::shared_ptr<grpc::Channel> Channel(const grpc::ChannelArguments& arguments = {}) const;
  std::unique_ptr<inference::GRPCInferenceService::Stub> Stub() const;
  // Returns a stub whose connection exists, for calls with a short deadline.
  std::unique_ptr<inference::GRPCInferenceService::Stub> ConnectedStub() const;

  // Makes a unary call with `request` unchanged.
  grpc::Status Infer(const inference::ModelInferRequest& request,
                     inference::ModelInferResponse* response,
                     grpc::ClientContext* context = nullptr) const;

  // Returns all samples of /metrics, by HTTP if the daemon serves it.
  std::map<std::string, double> Scrape() const;
  double Metric(const std::string& name, const std::string& label = "") const;
  // Waits until the sum of `name` is `value`. The test fails after three minutes.
  void AwaitMetric(const std::string& name, double value, const std::string& label = "") const;
  // Expects equal numbers of admitted and ended requests, and no request in the engine.
  void ExpectBalanced() const;

 private:
  FakeBackend backend_;
  std::unique_ptr<Log> log_;
  Metrics metrics_;
  Statistics statistics_;
  RecentActivity activity_{Clock::Real()};
  AccessLog access_;
  Observers observers_;
  ReplyThreads replies_{2};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
};

// Calls `path` with `bytes` as the message, which may be malformed.
grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                     const std::string& bytes, grpc::ClientContext* context);

std::string Trailer(const grpc::ClientContext& context, const std::string& name);

}  // namespace sluice::testing
