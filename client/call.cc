#include "client/call.h"

#include <chrono>

namespace sluice::client {

void SetDeadline(int64_t deadline_us, grpc::ClientContext* context) {
  if (deadline_us == 0) return;
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(deadline_us));
}

absl::Status ToStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace sluice::client
