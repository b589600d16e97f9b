#include "client/connection.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "client/call.h"
#include "client/exit_code.h"
#include "client/stream_error.h"
#include "proto/metric_names.h"

namespace sluice::client {
namespace {

constexpr char kInstancePrefix[] = "instance:";  // of an extension in the server's metadata

std::shared_ptr<grpc::Channel> OpenChannel(
    const std::string& server, const std::string& server_name,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(std::numeric_limits<int32_t>::max());
  arguments.SetMaxSendMessageSize(std::numeric_limits<int32_t>::max());
  // Ignores any web proxy set in the environment.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (!server_name.empty()) arguments.SetSslTargetNameOverride(server_name);
  return grpc::CreateCustomChannel(server, credentials, arguments);
}

std::string HintOf(Reason reason) {
  const ReasonInfo& info = InfoOf(reason);
  std::string hint(info.name);
  hint.append(": ").append(info.cause).append(" ").append(info.remedy);
  return hint;
}

// Returns why no connection was made, and the flags to change.
std::string HintForUnavailable(absl::string_view message, const Arguments& arguments) {
  // The last one is a signature by another key of an authority with the same name.
  if (absl::StrContains(message, "certificate verify failed") ||
      absl::StrContains(message, "CERTIFICATE_VERIFY_FAILED") ||
      absl::StrContains(message, "asn1 encoding routines")) {
    return absl::StrCat("the certificate of ", arguments.server,
                        " is expired or not signed by a trusted authority; give its authority "
                        "with --ca FILE");
  }
  if (absl::StrContains(message, "Hostname Verification") ||
      absl::StrContains(message, "Peer name")) {
    return absl::StrCat("the certificate of ", arguments.server,
                        " is for another name; give that name with --server-name");
  }
  const ConnectionArguments& own = arguments.connection;
  if (!own.cert.empty() && absl::StrContains(message, "empty address list")) {
    return "--cert and --key must be PEM files of one certificate and its own key";
  }
  const char* const certificates =
      own.cert.empty() ? ", or the server requires a certificate of the caller (--cert, --key); "
                       : ", or the server does not trust the certificate of --cert; ";
  const std::string no_answer = absl::StrCat(
      " answers at ", arguments.server,
      ", or it is shutting down, or one side speaks TLS and the other does not (--tls, --ca)",
      own.tls ? certificates : "; ");
  return arguments.calls_admin
             ? absl::StrCat("no admin API", no_answer,
                            "give the daemon's server.admin.address with --admin or "
                            "SLUICE_ADMIN")
             : absl::StrCat("no server", no_answer, "give --server HOST:PORT or set SLUICE_SERVER");
}

}  // namespace

Connection::Connection(const Arguments& arguments,
                       const std::shared_ptr<grpc::ChannelCredentials>& credentials)
    : options_{.deadline_us = arguments.deadline_us, .token = arguments.connection.token} {
  const auto channel = OpenChannel(arguments.server, arguments.connection.server_name, credentials);
  inference_ = inference::GRPCInferenceService::NewStub(channel);
  health_ = grpc::health::v1::Health::NewStub(channel);
  admin_ = admin::v1::Admin::NewStub(channel);
}

absl::StatusOr<Connection> Connection::To(const Endpoint& endpoint, int64_t deadline_us) {
  SLUICE_ASSIGN_OR_RETURN(const auto credentials, CredentialsOf(endpoint.connection));
  Arguments arguments;
  arguments.server = endpoint.address;
  arguments.connection = endpoint.connection;
  arguments.deadline_us = deadline_us;
  return Connection(arguments, credentials);
}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Connection::Call(const std::unique_ptr<Stub>& stub,
                                          grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                       const Request&, Response*),
                                          const Request& request) const {
  grpc::ClientContext context;
  Prepare(options_, &context);
  Response response;
  const grpc::Status status = (stub.get()->*method)(&context, request, &response);
  if (!status.ok()) return ToStatus(status, context);
  return response;
}

absl::StatusOr<inference::ModelInferResponse> Connection::Infer(
    const inference::ModelInferRequest& request) const {
  return Call(inference_, &inference::GRPCInferenceService::Stub::ModelInfer, request);
}

std::unique_ptr<InferStream> Connection::Stream(const inference::ModelInferRequest& request) const {
  return std::make_unique<InferStream>(inference_.get(), options_, request);
}

absl::StatusOr<inference::RepositoryIndexResponse> Connection::Index() const {
  return Call(inference_, &inference::GRPCInferenceService::Stub::RepositoryIndex,
              inference::RepositoryIndexRequest());
}

absl::StatusOr<std::string> Connection::Instance() const {
  SLUICE_ASSIGN_OR_RETURN(const auto metadata,
                          Call(inference_, &inference::GRPCInferenceService::Stub::ServerMetadata,
                               inference::ServerMetadataRequest()));
  for (const std::string& extension : metadata.extensions()) {
    if (absl::StartsWith(extension, kInstancePrefix)) return extension;
  }
  return std::string();
}

absl::StatusOr<inference::ModelMetadataResponse> Connection::Metadata(
    const std::string& model, const std::string& version) const {
  inference::ModelMetadataRequest request;
  request.set_name(model);
  request.set_version(version);
  return Call(inference_, &inference::GRPCInferenceService::Stub::ModelMetadata, request);
}

absl::StatusOr<inference::ModelStatisticsResponse> Connection::Statistics(
    const std::string& model) const {
  inference::ModelStatisticsRequest request;
  request.set_name(model);
  return Call(inference_, &inference::GRPCInferenceService::Stub::ModelStatistics, request);
}

absl::StatusOr<grpc::health::v1::HealthCheckResponse> Connection::Health(
    const std::string& service) const {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  return Call(health_, &grpc::health::v1::Health::Stub::Check, request);
}

absl::StatusOr<admin::v1::GetBucketsResponse> Connection::Buckets(const std::string& model,
                                                                  const std::string& version,
                                                                  bool history) const {
  admin::v1::GetBucketsRequest request;
  request.set_model_name(model);
  request.set_model_version(version);
  request.set_history(history);
  return Call(admin_, &admin::v1::Admin::Stub::GetBuckets, request);
}

absl::StatusOr<admin::v1::RunReviewResponse> Connection::Review(const std::string& model,
                                                                const std::string& version,
                                                                bool force) const {
  admin::v1::RunReviewRequest request;
  request.set_model_name(model);
  request.set_model_version(version);
  request.set_force(force);
  return Call(admin_, &admin::v1::Admin::Stub::RunReview, request);
}

absl::StatusOr<admin::v1::RunReviewResponse> Connection::SetLadder(
    const admin::v1::SetLadderRequest& request) const {
  return Call(admin_, &admin::v1::Admin::Stub::SetLadder, request);
}

absl::StatusOr<admin::v1::TryStrategiesResponse> Connection::TryStrategies(
    const std::string& model, const std::string& version) const {
  admin::v1::TryStrategiesRequest request;
  request.set_model_name(model);
  request.set_model_version(version);
  return Call(admin_, &admin::v1::Admin::Stub::TryStrategies, request);
}

absl::StatusOr<admin::v1::DescribeStepResponse> Connection::DescribeStep(
    const admin::v1::DescribeStepRequest& request) const {
  return Call(admin_, &admin::v1::Admin::Stub::DescribeStep, request);
}

absl::StatusOr<admin::v1::ExplainResponse> Connection::Explain(const std::string& request_id,
                                                               const std::string& model) const {
  admin::v1::ExplainRequest request;
  request.set_request_id(request_id);
  request.set_model_name(model);
  return Call(admin_, &admin::v1::Admin::Stub::Explain, request);
}

template <typename Request>
Request NamedModel(const std::string& model, int64_t version) {
  Request request;
  request.set_model_name(model);
  if (version != 0) (*request.mutable_parameters())["version"].set_int64_param(version);
  return request;
}

absl::Status Connection::Load(const std::string& model, int64_t version) const {
  return Call(inference_, &inference::GRPCInferenceService::Stub::RepositoryModelLoad,
              NamedModel<inference::RepositoryModelLoadRequest>(model, version))
      .status();
}

absl::Status Connection::Unload(const std::string& model, int64_t version) const {
  return Call(inference_, &inference::GRPCInferenceService::Stub::RepositoryModelUnload,
              NamedModel<inference::RepositoryModelUnloadRequest>(model, version))
      .status();
}

absl::StatusOr<admin::v1::ReloadResponse> Connection::Reload() const {
  return Call(admin_, &admin::v1::Admin::Stub::Reload, admin::v1::ReloadRequest());
}

absl::StatusOr<std::string> OnlyModel(const Connection& connection) {
  SLUICE_ASSIGN_OR_RETURN(const auto index, connection.Index());
  std::set<std::string> names;
  for (const auto& model : index.models()) {
    const bool adapter = model.name().find(':') != std::string::npos;  // MODEL:ADAPTER
    if (model.state() != "UNAVAILABLE" && !adapter) names.insert(model.name());
  }
  if (names.size() == 1) return *names.begin();
  return absl::FailedPreconditionError(
      names.empty()
          ? "the server serves no model; list one in its configuration, or run sluice load"
          : absl::StrCat("the server serves several models; choose one with --model: ",
                         absl::StrJoin(names, ", ")));
}

absl::Status CheckSameDaemon(const absl::StatusOr<std::string>& instance,
                             const std::string& server_address, const Connection& admin,
                             const std::string& admin_address) {
  if (!instance.ok() || instance->empty()) return absl::OkStatus();
  const auto found = admin.Instance();
  // An admin address that does not answer is the error of the command's own call.
  if (!found.ok() || found->empty() || *found == *instance) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the admin address ", admin_address, " belongs to another daemon than the server ",
      server_address, "; set --admin or SLUICE_ADMIN to server.admin.address of that daemon"));
}

absl::Status CheckSameMetrics(const absl::StatusOr<std::string>& instance,
                              const std::string& server_address,
                              const absl::StatusOr<std::vector<Sample>>& metrics,
                              const std::string& metrics_address) {
  if (!instance.ok() || instance->empty() || !metrics.ok()) return absl::OkStatus();
  const auto found = std::ranges::find(*metrics, metric::kInstanceInfo.name, &Sample::name);
  if (found == metrics->end()) {
    // Daemons of earlier versions do not have the metric.
    const bool daemon =
        std::ranges::find(*metrics, metric::kBuildInfo.name, &Sample::name) != metrics->end();
    if (daemon) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the page at ", metrics_address, "/metrics is not of a Sluice daemon"));
  }
  const auto id = found->labels.find("id");
  if (id != found->labels.end() && absl::StrCat(kInstancePrefix, id->second) == *instance) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("the metrics address ", metrics_address,
                                                 " belongs to another daemon than the "
                                                 "server ",
                                                 server_address));
}

std::string HintFor(const absl::Status& status, const Arguments& arguments) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return HasReason(status) ? HintOf(ReasonOf(status))
                               : HintForUnavailable(status.message(), arguments);
    case absl::StatusCode::kUnauthenticated:
      if (HasReason(status) && ReasonOf(status) == Reason::kTokenUnknown) {
        return "the daemon does not know this token: correct SLUICE_TOKEN or --token, or add the "
               "caller to server.auth.callers_file";
      }
      return "the server requires a credential: set SLUICE_TOKEN or --token, or --cert and --key";
    case absl::StatusCode::kDeadlineExceeded:
      return "allow more time: --deadline for the whole call, --timeout for the server's queue";
    case absl::StatusCode::kResourceExhausted:
      if (HasReason(status)) return HintOf(ReasonOf(status));
      return "the message is too large (server.grpc.max_message_bytes), or the server is "
             "overloaded; send less in one request, or try later";
    case absl::StatusCode::kUnimplemented:
      return absl::StrCat("does ", arguments.server,
                          " serve this? The admin API has its own address (server.admin.address of "
                          "the daemon): set --admin or SLUICE_ADMIN");
    default:
      return "";
  }
}

std::string FailureText(const absl::Status& status, const Arguments& arguments) {
  std::string text =
      absl::StrCat("sluice: ", status.ToString(absl::StatusToStringMode::kWithNoExtraData), "\n");
  const std::string hint = HintFor(status, arguments);
  if (!hint.empty()) absl::StrAppend(&text, "hint: ", hint, "\n");
  return text;
}

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  return status.code() == absl::StatusCode::kUnavailable ? kExitUnavailable : kExitFailed;
}

}  // namespace sluice::client
