// The credentials that the client presents to a server, and the authorities it trusts.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"

namespace sluice::client {

// How to reach the server.
struct ConnectionArguments {
  bool tls = false;
  std::string ca;    // PEM file of the authorities to trust; empty means the system's
  std::string cert;  // PEM files of the caller's certificate and key; empty means none
  std::string key;
  // The name that the server's certificate must have. Empty means the server's host.
  std::string server_name;
  std::string token;  // empty means none
};

// Returns credentials for plain text or TLS. Errors name the file that cannot be read.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(
    const ConnectionArguments& arguments);

}  // namespace sluice::client
