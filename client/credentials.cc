#include "client/credentials.h"

#include "base/read_file.h"
#include "base/status_macros.h"

namespace sluice::client {
namespace {

absl::Status ReadPem(const std::string& path, std::string* pem) {
  if (path.empty()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(*pem, ReadFile(path));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(
    const ConnectionArguments& arguments) {
  if (!arguments.tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  SLUICE_RETURN_IF_ERROR(ReadPem(arguments.ca, &options.pem_root_certs));
  SLUICE_RETURN_IF_ERROR(ReadPem(arguments.cert, &options.pem_cert_chain));
  SLUICE_RETURN_IF_ERROR(ReadPem(arguments.key, &options.pem_private_key));
  return grpc::SslCredentials(options);
}

}  // namespace sluice::client
