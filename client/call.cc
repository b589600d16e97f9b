#include "client/call.h"

#include <chrono>

namespace sluice::client {

void Prepare(const CallOptions& options, grpc::ClientContext* context) {
  if (!options.token.empty()) context->AddMetadata("authorization", "Bearer " + options.token);
  if (options.deadline_us == 0) return;
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::microseconds(options.deadline_us));
}

absl::Status ToStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace sluice::client
