#include "server/observe/statistics.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

namespace sluice {

void Statistics::Total::Add(nanoseconds duration) {
  ++count;
  time += std::max(duration, nanoseconds(0));
}

void Statistics::Total::Write(inference::StatisticDuration* out) const {
  out->set_count(count);
  out->set_ns(time.count());
}

std::shared_ptr<Statistics::OfModel> Statistics::For(const Model& model) {
  return models_.Get(model.name, model.version, [] { return std::make_unique<OfModel>(); });
}

void Statistics::OnRequestDone(const Request& request, const absl::Status& status,
                               const RequestTrace& trace) {
  const std::shared_ptr<OfModel> held = For(*request.spec->model);
  OfModel& model = *held;
  MutexLock lock(&model.mu);
  if (!status.ok()) {
    model.fail.Add(trace.done - trace.received);
    return;
  }
  model.rows += request.rows();
  model.success.Add(trace.done - trace.received);
  model.input.Add(trace.queued - trace.received);
  model.queue.Add(trace.first_run - trace.queued);
  model.infer.Add(trace.compute);
  model.output.Add(trace.done - trace.first_run - trace.compute);
}

void Statistics::OnBatch(const BatchTrace& trace) {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  const std::shared_ptr<OfModel> held = For(*trace.model);
  OfModel& model = *held;
  MutexLock lock(&model.mu);
  model.last_inference_ms = std::chrono::duration_cast<std::chrono::milliseconds>(wall).count();
  ++model.batches;
  OfBatchSize& totals = model.by_batch_size[trace.sequences];
  totals.input.Add(trace.form);
  totals.infer.Add(trace.replay);
  totals.output.Add(trace.deliver);
}

inference::ModelStatistics Statistics::Describe(const ModelStats& stats) {
  inference::ModelStatistics out;
  out.set_name(stats.model->name);
  out.set_version(absl::StrCat(stats.model->version));
  const auto memory = [&out](const char* type, int64_t bytes) {
    inference::MemoryUsage* usage = out.add_memory_usage();
    usage->set_type(type);
    usage->set_byte_size(bytes);
  };
  memory("weights", stats.weight_bytes);
  memory("adapters", stats.adapters.bytes);
  memory("plans", stats.plan_memory_bytes);
  memory("activations", stats.slot_memory.activations);
  memory("head_graphs", stats.slot_memory.graphs);
  memory("kv", stats.slot_memory.kv);
  memory("pinned", stats.slot_memory.pinned);
  memory("mapped", stats.mapped_bytes);
  memory("copied", stats.copied_bytes);

  const std::shared_ptr<OfModel> held = For(*stats.model);
  OfModel& model = *held;
  MutexLock lock(&model.mu);
  out.set_last_inference(model.last_inference_ms);
  out.set_inference_count(model.rows);
  out.set_execution_count(model.batches);
  inference::InferStatistics* requests = out.mutable_inference_stats();
  model.success.Write(requests->mutable_success());
  model.fail.Write(requests->mutable_fail());
  model.queue.Write(requests->mutable_queue());
  model.input.Write(requests->mutable_compute_input());
  model.infer.Write(requests->mutable_compute_infer());
  model.output.Write(requests->mutable_compute_output());
  for (const auto& [size, totals] : model.by_batch_size) {
    inference::InferBatchStatistics* batch = out.add_batch_stats();
    batch->set_batch_size(size);
    totals.input.Write(batch->mutable_compute_input());
    totals.infer.Write(batch->mutable_compute_infer());
    totals.output.Write(batch->mutable_compute_output());
  }
  return out;
}

}  // namespace sluice
