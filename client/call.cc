#include "client/call.h"

#include <chrono>
#include <string_view>

#include "client/stream_error.h"

namespace sluice::client {

void Prepare(const CallOptions& options, grpc::ClientContext* context) {
  if (!options.token.empty()) context->AddMetadata("authorization", "Bearer " + options.token);
  if (options.deadline_us == 0) return;
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::microseconds(options.deadline_us));
}

absl::Status ToStatus(const grpc::Status& status, const grpc::ClientContext& context) {
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto sent = trailers.find("sluice-reason");
  const grpc::string_ref reason = sent == trailers.end() ? grpc::string_ref() : sent->second;
  return ReceivedError(code, std::string_view(reason.data(), reason.size()),
                       status.error_message());
}

}  // namespace sluice::client
