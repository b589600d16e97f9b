#include "tests/server/scripted_engine.h"

#include <utility>

#include "base/status_macros.h"
#include "tests/server/protocol/messages.h"

namespace sluice::testing {

ScriptedEngine::ScriptedEngine() : model_(TextModel()) { SetStats({}); }

ScriptedEngine::Submitted ScriptedEngine::Await(const std::string& id) {
  MutexLock lock(&mu_);
  while (!submitted_.contains(id)) changed_.Wait(&mu_);
  return std::move(submitted_.extract(id).mapped());
}

void ScriptedEngine::AwaitCancelled(size_t count) {
  MutexLock lock(&mu_);
  while (cancelled_.size() < count) changed_.Wait(&mu_);
}

size_t ScriptedEngine::cancelled() const {
  MutexLock lock(&mu_);
  return cancelled_.size();
}

void ScriptedEngine::RefuseAll(absl::Status status) {
  MutexLock lock(&mu_);
  refusal_ = std::move(status);
}

void ScriptedEngine::SetStats(ModelStats stats) {
  MutexLock lock(&mu_);
  stats_ = std::move(stats);
  stats_.model = model_;
}

std::vector<ModelStats> ScriptedEngine::Stats() const {
  MutexLock lock(&mu_);
  return {stats_};
}

absl::Status ScriptedEngine::Exchange(const ModelChange&) {
  return absl::UnimplementedError("scripted");
}

absl::StatusOr<std::shared_ptr<const Model>> ScriptedEngine::Resolve(std::string_view name,
                                                                     std::string_view) const {
  if (name != model_->name) return absl::NotFoundError("no such model");
  return model_;
}

absl::StatusOr<RequestId> ScriptedEngine::Submit(Request request, std::shared_ptr<Sink> sink,
                                                 MonoTime) {
  MutexLock lock(&mu_);
  SLUICE_RETURN_IF_ERROR(refusal_);
  const RequestId id = next_id_++;
  const std::string name = request.spec->id;
  submitted_[name] = {id, std::move(request), std::move(sink)};
  changed_.SignalAll();
  return id;
}

void ScriptedEngine::Cancel(RequestId id) {
  MutexLock lock(&mu_);
  cancelled_.push_back(id);
  changed_.SignalAll();
}

absl::StatusOr<ReviewReport> ScriptedEngine::Review(std::string_view, std::string_view, bool) {
  return absl::UnimplementedError("scripted");
}

absl::StatusOr<Explanation> ScriptedEngine::Explain(std::string_view, std::string_view) const {
  return absl::UnimplementedError("scripted");
}

}  // namespace sluice::testing
