#include "client/credentials.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace sluice::client {
namespace {

absl::Status ReadPem(const std::string& path, std::string* pem) {
  if (path.empty()) return absl::OkStatus();
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  if (!file.is_open() || !(content << file.rdbuf())) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path));
  }
  *pem = content.str();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(
    const ConnectionArguments& arguments) {
  if (!arguments.tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  absl::Status status = ReadPem(arguments.ca, &options.pem_root_certs);
  if (status.ok()) status = ReadPem(arguments.cert, &options.pem_cert_chain);
  if (status.ok()) status = ReadPem(arguments.key, &options.pem_private_key);
  if (!status.ok()) return status;
  return grpc::SslCredentials(options);
}

}  // namespace sluice::client
