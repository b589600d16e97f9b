#include <grpcpp/support/client_interceptor.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "loadtest/load/transport.h"

namespace sluice::load {
namespace {

using grpc::experimental::ClientInterceptorFactoryInterface;
using grpc::experimental::ClientRpcInfo;
using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;

// Adds the token to a call. The call credentials of gRPC would refuse to send it without TLS.
class ShowToken final : public Interceptor {
 public:
  explicit ShowToken(const std::string& value) : value_(value) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace("authorization", value_);
    }
    methods->Proceed();
  }

 private:
  const std::string& value_;
};

class ShowTokenFactory final : public ClientInterceptorFactoryInterface {
 public:
  explicit ShowTokenFactory(const std::string& token) : value_(absl::StrCat("Bearer ", token)) {}
  Interceptor* CreateClientInterceptor(ClientRpcInfo* /*info*/) override {
    return new ShowToken(value_);
  }

 private:
  const std::string value_;
};

std::shared_ptr<grpc::Channel> OpenChannel(
    const std::string& address, const client::ConnectionArguments& connection, int number,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // Channels with equal arguments would share one connection.
  arguments.SetInt("sluice.channel", number);
  if (!connection.server_name.empty()) arguments.SetSslTargetNameOverride(connection.server_name);
  std::vector<std::unique_ptr<ClientInterceptorFactoryInterface>> interceptors;
  if (!connection.token.empty()) {
    interceptors.push_back(std::make_unique<ShowTokenFactory>(connection.token));
  }
  return grpc::experimental::CreateCustomChannelWithInterceptors(address, credentials, arguments,
                                                                 std::move(interceptors));
}

}  // namespace

absl::StatusOr<Channels> Connect(const std::string& address,
                                 const client::ConnectionArguments& connection, int count,
                                 std::chrono::nanoseconds timeout) {
  SLUICE_ASSIGN_OR_RETURN(const auto credentials, client::CredentialsOf(connection));
  const auto until = std::chrono::system_clock::now() + timeout;
  Channels channels;
  for (int i = 0; i < count; ++i) {
    channels.push_back(OpenChannel(address, connection, i, credentials));
    if (!channels.back()->WaitForConnected(until)) {
      return absl::UnavailableError(absl::StrCat("no server at ", address));
    }
  }
  return channels;
}

}  // namespace sluice::load
