// A whole daemon in the test's process: the real engine on the fake backend, real sockets.
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "proto/health.grpc.pb.h"
#include "proto/inference.grpc.pb.h"
#include "server/calls/reply_thread.h"
#include "server/common/log.h"
#include "server/daemon/server.h"
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
    Options();  // gRPC on a free port of the loopback, no HTTP, errors only in the log
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

  // A unary call with `request` as it is.
  grpc::Status Infer(const inference::ModelInferRequest& request,
                     inference::ModelInferResponse* response,
                     grpc::ClientContext* context = nullptr) const;

  // All samples, as /metrics would show them; over HTTP where the daemon has it.
  std::map<std::string, double> Scrape() const;
  double Metric(const std::string& name, const std::string& label = "") const;
  // Returns once the sum of `name` is `value`.
  void AwaitMetric(const std::string& name, double value, const std::string& label = "") const;
  // admitted = the sum of all endings, and nothing is left in the engine.
  void ExpectBalanced() const;

 private:
  FakeBackend backend_;
  std::unique_ptr<Log> log_;
  Metrics metrics_;
  Statistics statistics_;
  RecentActivity activity_{Clock::Real()};
  Observers observers_;
  ReplyThread replies_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
};

// Calls `path` with bytes as the message, so that they may be malformed.
grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                     const std::string& bytes, grpc::ClientContext* context);

std::string Trailer(const grpc::ClientContext& context, const std::string& name);

}  // namespace sluice::testing
