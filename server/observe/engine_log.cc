#include "server/observe/engine_log.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "server/observe/bucket_summary.h"

namespace sluice {
namespace {

std::string BucketLabels(const std::vector<Bucket>& buckets) {
  return absl::StrJoin(buckets, ",", [](std::string* out, const Bucket& bucket) {
    out->append(BucketLabel(bucket));
  });
}

}  // namespace

void EngineLog::OnPlan(const PlanTrace& trace) {
  if (trace.ok) return;
  log_->Warn("plan not prepared", {{"model", trace.model->name},
                                   {"version", trace.model->version},
                                   {"bucket", BucketLabel(trace.bucket)}});
}

void EngineLog::OnReview(const Model& model, const ReviewReport& report) {
  std::vector<LogField> fields = {
      {"model", model.name}, {"version", model.version}, {"reason", report.reason}};
  if (!report.changed) {
    log_->Debug("ladder kept", fields);
    return;
  }
  const auto add = [&](const char* kind, const std::vector<Bucket>& buckets) {
    if (!buckets.empty()) fields.push_back({kind, BucketLabels(buckets)});
  };
  add("added", report.diff.added);
  add("removed", report.diff.removed);
  add("merged", report.diff.merged);
  add("split", report.diff.split);
  fields.push_back({"gain", report.gain});
  fields.push_back({"bucket_fill_before", report.bucket_fill_before});
  fields.push_back({"bucket_fill_after", report.bucket_fill_after});
  fields.push_back({"buckets", std::ssize(report.after)});
  log_->Info("ladder changed", fields);
}

void EngineLog::OnKernels(const Model& model, std::string_view kernels) {
  log_->Info("kernels chosen",
             {{"model", model.name}, {"version", model.version}, {"kernels", kernels}});
}

void EngineLog::OnNotice(const Model& model, std::string_view notice) {
  log_->Warn(notice, {{"model", model.name}, {"version", model.version}});
}

}  // namespace sluice
