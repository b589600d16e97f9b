// What to show a server, and what to believe of it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"

namespace sluice::client {

// How to reach the server.
struct ConnectionArguments {
  bool tls = false;
  std::string ca;    // PEM file of the authorities to believe; empty: the system's
  std::string cert;  // PEM files of the caller's certificate and key; empty: none
  std::string key;
  std::string server_name;  // that its certificate has to have; empty: its host
  std::string token;        // empty: none
};

// Those of plain text or TLS. Errors name the file that cannot be read.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(
    const ConnectionArguments& arguments);

}  // namespace sluice::client
