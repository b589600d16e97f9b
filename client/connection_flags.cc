#include "client/connection_flags.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "client/flag_values.h"

namespace sluice::client {

void AddConnectionFlags(ConnectionArguments* flags, CLI::App* app) {
  app->add_flag("--tls", flags->tls, Help("Speak TLS; --ca, --cert and --server-name imply it."));
  app->add_option("--ca", flags->ca,
                  Help("PEM file of the authorities to believe. Default: the system's."));
  app->add_option("--cert", flags->cert, Help("PEM file of a certificate to show; with --key."));
  app->add_option("--key", flags->key, "PEM file of its key.");
  app->add_option(
      "--server-name", flags->server_name,
      Help("The name that the server's certificate has to have. Default: the host of --server."));
  app->add_option("--token", flags->token,
                  Help("Bearer token to show. Others on this machine may see flags: better is "
                       "SLUICE_TOKEN in the environment, the default."));
}

absl::Status CompleteConnection(const std::function<const char*(const char*)>& getenv,
                                ConnectionArguments* arguments) {
  if (arguments->cert.empty() != arguments->key.empty()) {
    return FlagError(arguments->key.empty() ? "--key" : "--cert", "missing: both or neither");
  }
  arguments->tls |= !arguments->ca.empty() || !arguments->cert.empty();
  arguments->tls |= !arguments->server_name.empty();
  const char* const token = getenv("SLUICE_TOKEN");
  if (arguments->token.empty() && token != nullptr) arguments->token = token;
  // gRPC treats other bytes in metadata as a programming error and aborts.
  if (!std::all_of(arguments->token.begin(), arguments->token.end(), absl::ascii_isgraph)) {
    return FlagError("--token", "expected printable ASCII without spaces");
  }
  return absl::OkStatus();
}

}  // namespace sluice::client
