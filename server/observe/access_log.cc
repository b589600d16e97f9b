#include "server/observe/access_log.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/random/random.h"
#include "absl/strings/escaping.h"
#include "server/common/status.h"

namespace sluice {
namespace {

bool InSample(double share) {
  thread_local absl::BitGen generator;  // seeded from the system's entropy
  return absl::Uniform(generator, 0.0, 1.0) < share;
}

int64_t Micros(nanoseconds duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

std::string TraceId(const TraceContext& trace) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(trace.trace_id), sizeof(trace.trace_id)));
}

}  // namespace

void AccessLog::OnRequestDone(const Request& request, const absl::Status& status,
                              const RequestTrace& trace) {
  if (status.code() != absl::StatusCode::kInternal && !InSample(share_)) return;
  const bool ran = trace.first_run != MonoTime{};
  const MonoTime queue_end = ran ? trace.first_run : trace.done;
  std::vector<LogField> fields = {
      {"id", request.spec->id},
      {"model", ServedNameOf(*request.spec)},
      {"version", request.spec->model->version},
      {"code", absl::StatusCodeToString(status.code())},
      {"rows", request.rows()},
      {"prompt_tokens", trace.prompt_tokens},
      {"reused_tokens", trace.reused_tokens},
      {"generated_tokens", trace.generated_tokens},
      {"drafted_tokens", trace.drafted_tokens},
      {"accepted_tokens", trace.accepted_tokens},
      {"bucket", trace.bucket_tokens},
      {"steps", trace.steps},
      {"preemptions", trace.preemptions},
      {"queue_us", Micros(queue_end - trace.queued)},
      {"compute_us", Micros(trace.compute)},
      {"total_us", Micros(trace.done - trace.received)},
  };
  if (!request.caller.empty()) fields.push_back({"caller", request.caller});
  const std::string trace_id = TraceId(request.trace);
  if (trace_id.find_first_not_of('0') != std::string::npos)
    fields.push_back({"trace_id", trace_id});
  if (!status.ok()) fields.push_back({"error", std::string(status.message())});
  log_->Info("request", fields);
}

}  // namespace sluice
