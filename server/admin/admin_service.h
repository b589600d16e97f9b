// The gRPC service sluice.admin.v1.Admin, which describes the engine's buckets and decisions and
// reloads the configuration.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/work_queue.h"
#include "proto/admin.pb.h"
#include "server/calls/answer.h"
#include "server/inference/serving_context.h"

namespace sluice {

// The result of a reload.
struct ReloadReport {
  // Paths of the changed options, as messages and logs name them.
  std::vector<std::string> applied;
  std::vector<std::string> needs_restart;
  ModelManager::Changes models;
};
using Reload = std::function<absl::StatusOr<ReloadReport>()>;  // it blocks

// Thread-safe; no method blocks. Calls about ladders run on one thread of this object and
// DescribeStep on another, one call at a time. A few calls may wait; further ones get
// RESOURCE_EXHAUSTED. gRPC has finished all calls of the service before it is destroyed.
class AdminService final : public AnsweringService {
 public:
  // See MakeStreamedUnary for `callers`. Both arguments outlive the service.
  explicit AdminService(ServingContext& context, const Callers* callers = nullptr);

  // Sets the handler of the method Reload. Must be called before the server is ready; without a
  // handler, the method returns UNAVAILABLE.
  void SetReload(Reload reload) { *reload_ = std::move(reload); }

 private:
  void AddLadderMethods();
  void AddOtherMethods();
  absl::Status FillBuckets(const admin::v1::GetBucketsRequest& request,
                           admin::v1::GetBucketsResponse* response) const;

  ServingContext& context_;
  const std::shared_ptr<Reload> reload_ = std::make_shared<Reload>();  // reloads share it
  JobQueue reviewer_;
  JobQueue describer_;
};

}  // namespace sluice
