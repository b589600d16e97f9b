// An engine without a scheduler or model: the test itself answers the requests that the server
// submits.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace sluice::testing {

// Thread-safe. Serves the one model "text" of messages.h.
class ScriptedEngine final : public Engine {
 public:
  struct Submitted {
    RequestId id = 0;
    Request request;
    std::shared_ptr<Sink> sink;
  };

  ScriptedEngine();

  // Waits until the request with this caller's id has been submitted. The test acts as the engine's
  // thread.
  Submitted Await(const std::string& id);
  // Waits until `count` requests have been cancelled.
  void AwaitCancelled(size_t count);
  size_t cancelled() const;
  // Refuses all requests from now on.
  void RefuseAll(absl::Status status);
  // Sets the statistics of the model that Stats returns.
  void SetStats(ModelStats stats);

  absl::Status Exchange(const ModelChange& change) override;
  absl::StatusOr<std::shared_ptr<const Model>> Resolve(std::string_view name,
                                                       std::string_view version) const override;
  std::vector<std::shared_ptr<const Model>> Models() const override { return {model_}; }
  absl::StatusOr<RequestId> Submit(Request request, std::shared_ptr<Sink> sink,
                                   MonoTime received) override;
  void Cancel(RequestId id) override;
  void Drain(MonoTime deadline) override {}
  std::vector<ModelStats> Stats() const override;
  absl::StatusOr<ReviewReport> Review(std::string_view name, std::string_view version,
                                      bool force) override;
  absl::StatusOr<Explanation> Explain(std::string_view request_id,
                                      std::string_view model) const override;
  const BackendInfo& backend_info() const override { return info_; }

 private:
  const std::shared_ptr<const Model> model_;
  const BackendInfo info_{.device = "cpu", .profile = "exact", .page_tokens = 1};

  mutable Mutex mu_;
  CondVar changed_;
  std::map<std::string, Submitted> submitted_ ABSL_GUARDED_BY(mu_);
  std::vector<RequestId> cancelled_ ABSL_GUARDED_BY(mu_);
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
  ModelStats stats_ ABSL_GUARDED_BY(mu_);
  RequestId next_id_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace sluice::testing
