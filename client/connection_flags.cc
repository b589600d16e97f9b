#include "client/connection_flags.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "client/flag_values.h"

namespace sluice::client {

void AddConnectionFlags(ConnectionArguments* flags, CLI::App* app) {
  app->add_flag("--tls", flags->tls, Help("Use TLS; --ca, --cert and --server-name imply it."));
  app->add_option("--ca", flags->ca,
                  Help("PEM file of the certificate authorities to trust. Default: the system's."));
  app->add_option("--cert", flags->cert, Help("PEM file of the client certificate; needs --key."));
  app->add_option("--key", flags->key, "PEM file of the certificate's key.");
  app->add_option(
      "--server-name", flags->server_name,
      Help("The name that the server's certificate must have. Default: the host of --server."));
  app->add_option("--token", flags->token,
                  Help("Bearer token to send. Other users of this machine may see flags; "
                       "SLUICE_TOKEN in the environment, the default, is safer."));
}

absl::Status CompleteConnection(const std::function<const char*(const char*)>& getenv,
                                ConnectionArguments* arguments) {
  if (arguments->cert.empty() != arguments->key.empty()) {
    return FlagError(arguments->key.empty() ? "--key" : "--cert",
                     "missing; give both --cert and --key, or neither");
  }
  arguments->tls |= !arguments->ca.empty() || !arguments->cert.empty();
  arguments->tls |= !arguments->server_name.empty();
  const char* const token = getenv("SLUICE_TOKEN");
  if (arguments->token.empty() && token != nullptr) arguments->token = token;
  // For other bytes in metadata, gRPC aborts the process.
  if (!std::all_of(arguments->token.begin(), arguments->token.end(), absl::ascii_isgraph)) {
    return FlagError("--token", "expected printable ASCII without spaces");
  }
  return absl::OkStatus();
}

}  // namespace sluice::client
