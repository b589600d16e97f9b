#include "server/observe/access_log.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/common/status.h"

namespace sluice {
namespace {

// Returns the FNV-1a hash, mixed by the finalizer of SplitMix64 because the high bits of FNV are
// poor for short ids.
uint64_t StableHash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

int64_t Micros(nanoseconds duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

std::string TraceId(const TraceContext& trace) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(trace.trace_id), sizeof(trace.trace_id)));
}

}  // namespace

bool InSample(std::string_view id, double share) {
  return static_cast<double>(StableHash(id)) < std::ldexp(share, 64);
}

void AccessLog::OnRequestDone(const Request& request, const absl::Status& status,
                              const RequestTrace& trace) {
  if (status.code() != absl::StatusCode::kInternal) {
    const std::string arrival =
        request.spec->id.empty() ? absl::StrCat(trace.received.time_since_epoch().count()) : "";
    if (!InSample(request.spec->id.empty() ? arrival : request.spec->id, share_)) return;
  }
  const bool ran = trace.first_run != MonoTime{};
  const MonoTime queue_end = ran ? trace.first_run : trace.done;
  std::vector<LogField> fields = {
      {"id", request.spec->id},
      {"model", request.spec->model->name},
      {"version", request.spec->model->version},
      {"code", absl::StatusCodeToString(status.code())},
      {"rows", request.rows()},
      {"prompt_tokens", trace.prompt_tokens},
      {"reused_tokens", trace.reused_tokens},
      {"generated_tokens", trace.generated_tokens},
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
