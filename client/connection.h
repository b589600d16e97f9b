// Makes calls to one server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/arguments.h"
#include "client/call.h"
#include "client/credentials.h"
#include "client/infer_stream.h"
#include "client/metrics_text.h"
#include "proto/admin.grpc.pb.h"
#include "proto/health.grpc.pb.h"
#include "proto/inference.grpc.pb.h"

namespace sluice::client {

// A connection to one server. It is thread-safe. Errors have the codes of gRPC's.
class Connection {
 public:
  // Uses the server, its name, the deadline and the token of `arguments`.
  Connection(const Arguments& arguments,
             const std::shared_ptr<grpc::ChannelCredentials>& credentials);
  // Connects to another address than the command's own. Errors name the file that cannot be read.
  static absl::StatusOr<Connection> To(const Endpoint& endpoint, int64_t deadline_us);

  absl::StatusOr<inference::ModelInferResponse> Infer(
      const inference::ModelInferRequest& request) const;
  // Never returns nullptr; errors come from the stream.
  std::unique_ptr<InferStream> Stream(const inference::ModelInferRequest& request) const;
  absl::StatusOr<inference::RepositoryIndexResponse> Index() const;
  // Returns the text that differs between daemons and is the same at all addresses of one, or ""
  // from a daemon that has none.
  absl::StatusOr<std::string> Instance() const;
  // An empty version means the highest.
  absl::StatusOr<inference::ModelMetadataResponse> Metadata(const std::string& model,
                                                            const std::string& version) const;
  // An empty model means all.
  absl::StatusOr<inference::ModelStatisticsResponse> Statistics(const std::string& model) const;
  absl::StatusOr<grpc::health::v1::HealthCheckResponse> Health(const std::string& service) const;
  absl::StatusOr<admin::v1::GetBucketsResponse> Buckets(const std::string& model,
                                                        const std::string& version,
                                                        bool history = false) const;
  absl::StatusOr<admin::v1::RunReviewResponse> Review(const std::string& model,
                                                      const std::string& version, bool force) const;
  absl::StatusOr<admin::v1::RunReviewResponse> SetLadder(
      const admin::v1::SetLadderRequest& request) const;
  absl::StatusOr<admin::v1::TryStrategiesResponse> TryStrategies(const std::string& model,
                                                                 const std::string& version) const;
  absl::StatusOr<admin::v1::DescribeStepResponse> DescribeStep(
      const admin::v1::DescribeStepRequest& request) const;
  absl::StatusOr<admin::v1::ExplainResponse> Explain(const std::string& request_id,
                                                     const std::string& model) const;
  // Version 0 stands for no version, as in the protocol.
  absl::Status Load(const std::string& model, int64_t version) const;
  absl::Status Unload(const std::string& model, int64_t version) const;
  absl::StatusOr<admin::v1::ReloadResponse> Reload() const;

 private:
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(const std::unique_ptr<Stub>& stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request) const;

  CallOptions options_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> inference_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  std::unique_ptr<admin::v1::Admin::Stub> admin_;
};

// Returns the only served model, for commands without --model. Returns FailedPrecondition that
// lists the names if there are several.
absl::StatusOr<std::string> OnlyModel(const Connection& connection);

// Returns InvalidArgument if the admin address is known to belong to another daemon than the server
// with this instance.
absl::Status CheckSameDaemon(const absl::StatusOr<std::string>& instance,
                             const std::string& server_address, const Connection& admin,
                             const std::string& admin_address);

// Returns InvalidArgument if the page of metrics is known to belong to another daemon than the
// server with this instance, or to another program.
absl::Status CheckSameMetrics(const absl::StatusOr<std::string>& instance,
                              const std::string& server_address,
                              const absl::StatusOr<std::vector<Sample>>& metrics,
                              const std::string& metrics_address);

// Returns what to change after this error, or "".
std::string HintFor(const absl::Status& status, const Arguments& arguments);

// Returns "sluice: CODE: message", followed by a line with a hint if there is one.
std::string FailureText(const absl::Status& status, const Arguments& arguments);

int ExitCodeOf(const absl::Status& status);

}  // namespace sluice::client
