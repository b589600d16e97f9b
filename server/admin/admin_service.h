// sluice.admin.v1.Admin: insight into the engine's buckets and decisions, and reloads of the
// configuration. Methods are raw, as the inference service's are.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/work_queue.h"
#include "engine/engine.h"
#include "proto/admin.grpc.pb.h"
#include "server/common/options.h"
#include "server/inference/health.h"
#include "server/net/grpc_1_51/streamed_unary.h"

namespace sluice {

namespace internal {
using AdminGrpc = admin::v1::Admin;
using RawAdmin = AdminGrpc::WithRawCallbackMethod_GetBuckets<
    AdminGrpc::WithRawCallbackMethod_OptimizeBuckets<AdminGrpc::WithRawCallbackMethod_Explain<
        AdminGrpc::WithRawCallbackMethod_Reload<AdminGrpc::Service>>>>;
}  // namespace internal

// The result of a reload: paths of changed options, as messages and logs name them.
struct ReloadReport {
  std::vector<std::string> applied;
  std::vector<std::string> needs_restart;
};
using Reload = std::function<absl::StatusOr<ReloadReport>()>;  // blocks

// Thread-safe; no method blocks. OptimizeBuckets runs on a thread of its own, one call at a time;
// few may wait, more are RESOURCE_EXHAUSTED. Its arguments outlive it, and gRPC has finished all
// its calls before it is destroyed.
class AdminService final : public StreamedUnaryService<internal::RawAdmin> {
 public:
  // Reloads run on `loads`. `watch` bounds how long the messages of its calls may take.
  // `callers`: see MakeStreamedUnary.
  AdminService(EngineOptions options, Engine* engine, Clock* clock, const Health* health,
               JobQueue* loads, TransferWatch* watch, const Callers* callers = nullptr);

  // To be called before the server is ready; without it reloads are UNAVAILABLE.
  void SetReload(sluice::Reload reload) { reload_ = std::move(reload); }

  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  using Unary = grpc::ServerUnaryReactor;

  Unary* GetBuckets(Context* context, const Bytes* request, Bytes* response) override;
  Unary* OptimizeBuckets(Context* context, const Bytes* request, Bytes* response) override;
  Unary* Explain(Context* context, const Bytes* request, Bytes* response) override;
  Unary* Reload(Context* context, const Bytes* request, Bytes* response) override;

 private:
  absl::Status FillBuckets(const admin::v1::GetBucketsRequest& request,
                           admin::v1::GetBucketsResponse* response) const;
  absl::Status Ready() const;

  const EngineOptions options_;  // of the engine
  Engine* const engine_;
  Clock* const clock_;
  const Health* const health_;
  JobQueue* const loads_;
  sluice::Reload reload_;
  JobQueue optimizer_;
};

}  // namespace sluice
