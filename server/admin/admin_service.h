// The gRPC service sluice.admin.v1.Admin, which describes the engine's buckets and decisions and
// reloads the configuration. Its methods are raw, as those of the inference service are.
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
#include "server/observe/bucket_history.h"

namespace sluice {

namespace internal {
using AdminGrpc = admin::v1::Admin;
using RawLadders = AdminGrpc::WithRawCallbackMethod_GetBuckets<
    AdminGrpc::WithRawCallbackMethod_OptimizeBuckets<AdminGrpc::WithRawCallbackMethod_SetLadder<
        AdminGrpc::WithRawCallbackMethod_TryStrategies<AdminGrpc::Service>>>>;
using RawAdmin = AdminGrpc::WithRawCallbackMethod_DescribeStep<
    AdminGrpc::WithRawCallbackMethod_Explain<AdminGrpc::WithRawCallbackMethod_Reload<RawLadders>>>;
}  // namespace internal

// The result of a reload: the paths of the changed options, as messages and logs name them.
struct ReloadReport {
  std::vector<std::string> applied;
  std::vector<std::string> needs_restart;
};
using Reload = std::function<absl::StatusOr<ReloadReport>()>;  // it blocks

// Thread-safe; no method blocks. The calls about ladders run on a thread of theirs, and
// DescribeStep on another, one call at a time. A few further calls may wait; any beyond those get
// RESOURCE_EXHAUSTED. The constructor's arguments outlive the service, and gRPC has finished all
// its calls before it is destroyed.
class AdminService final : public StreamedUnaryService<internal::RawAdmin> {
 public:
  // Reloads run on `loads`. `watch` bounds how long the messages of the service's calls may take.
  // MakeStreamedUnary describes `callers`.
  AdminService(EngineOptions options, Engine* engine, Clock* clock, const BucketHistory* history,
               const Health* health, JobQueue* loads, TransferWatch* watch,
               const Callers* callers = nullptr);

  // Sets what the method Reload does. Must be called before the server is ready; without it, the
  // method returns UNAVAILABLE.
  void SetReload(sluice::Reload reload) { reload_ = std::move(reload); }

  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  using Unary = grpc::ServerUnaryReactor;

  Unary* GetBuckets(Context* context, const Bytes* request, Bytes* response) override;
  Unary* OptimizeBuckets(Context* context, const Bytes* request, Bytes* response) override;
  Unary* SetLadder(Context* context, const Bytes* request, Bytes* response) override;
  Unary* TryStrategies(Context* context, const Bytes* request, Bytes* response) override;
  Unary* DescribeStep(Context* context, const Bytes* request, Bytes* response) override;
  Unary* Explain(Context* context, const Bytes* request, Bytes* response) override;
  Unary* Reload(Context* context, const Bytes* request, Bytes* response) override;

 private:
  absl::Status FillBuckets(const admin::v1::GetBucketsRequest& request,
                           admin::v1::GetBucketsResponse* response) const;
  absl::Status Ready() const;

  const EngineOptions options_;  // the options of the engine
  Engine* const engine_;
  Clock* const clock_;
  const BucketHistory* const history_;
  const Health* const health_;
  JobQueue* const loads_;
  sluice::Reload reload_;
  JobQueue optimizer_;
  JobQueue describer_;
};

}  // namespace sluice
