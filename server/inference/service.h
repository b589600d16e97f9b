// The inference service. All its methods are raw, so that malformed Protobuf gets INVALID_ARGUMENT
// (see wire.h). Inference is in unary_infer and stream_infer; the other methods answer at once.
#pragma once

#include <string>
#include <vector>

#include "base/work_queue.h"
#include "engine/engine.h"
#include "proto/inference.grpc.pb.h"
#include "server/inference/frontend.h"
#include "server/inference/health.h"
#include "server/models/model_manager.h"
#include "server/net/grpc_1_51/streamed_unary.h"
#include "server/observe/statistics.h"
#include "server/protocol/describe/metadata.h"

namespace sluice {

namespace internal {
using Grpc = inference::GRPCInferenceService;
template <typename Base>
using RawServer = Grpc::WithRawCallbackMethod_ServerLive<
    Grpc::WithRawCallbackMethod_ServerReady<Grpc::WithRawCallbackMethod_ServerMetadata<Base>>>;
template <typename Base>
using RawModel = Grpc::WithRawCallbackMethod_ModelReady<Grpc::WithRawCallbackMethod_ModelMetadata<
    Grpc::WithRawCallbackMethod_ModelConfig<Grpc::WithRawCallbackMethod_ModelStatistics<Base>>>>;
template <typename Base>
using RawRepository =
    Grpc::WithRawCallbackMethod_RepositoryIndex<Grpc::WithRawCallbackMethod_RepositoryModelLoad<
        Grpc::WithRawCallbackMethod_RepositoryModelUnload<Base>>>;
template <typename Base>
using RawInfer =
    Grpc::WithRawCallbackMethod_ModelInfer<Grpc::WithRawCallbackMethod_ModelStreamInfer<Base>>;
using RawService = RawServer<RawModel<RawRepository<RawInfer<Grpc::Service>>>>;
}  // namespace internal

// Whether models may be loaded and unloaded through a service.
enum class Management { kDenied, kAllowed };

// The parts that a service uses. They are not owned and outlive it.
struct InferenceParts {
  Engine* engine;
  InferenceFrontend* frontend;
  Health* health;
  Statistics* statistics;
  ModelManager* models;
  JobQueue* loads;    // loads models
  JobQueue* lookups;  // reads the repository's index
  TransferWatch* transfers;
  TransferWatch* idle_streams;
  const Callers* callers = nullptr;  // if nullptr, everybody may call
};

// Thread-safe; no method blocks. Owns nothing.
class InferenceService final : public StreamedUnaryService<internal::RawService> {
 public:
  InferenceService(int64_t max_queue_delay_us, std::string version, Management management,
                   const InferenceParts& parts);

  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  using Unary = grpc::ServerUnaryReactor;

  grpc::ServerBidiReactor<Bytes, Bytes>* ModelStreamInfer(Context* context) override;

  Unary* ServerLive(Context* context, const Bytes* request, Bytes* response) override;
  Unary* ServerReady(Context* context, const Bytes* request, Bytes* response) override;
  Unary* ServerMetadata(Context* context, const Bytes* request, Bytes* response) override;
  Unary* ModelReady(Context* context, const Bytes* request, Bytes* response) override;
  Unary* ModelMetadata(Context* context, const Bytes* request, Bytes* response) override;
  Unary* ModelConfig(Context* context, const Bytes* request, Bytes* response) override;
  Unary* ModelStatistics(Context* context, const Bytes* request, Bytes* response) override;
  Unary* RepositoryIndex(Context* context, const Bytes* request, Bytes* response) override;
  Unary* RepositoryModelLoad(Context* context, const Bytes* request, Bytes* response) override;
  Unary* RepositoryModelUnload(Context* context, const Bytes* request, Bytes* response) override;

 private:
  std::vector<int64_t> VersionsOf(const std::string& name) const;

  absl::Status MayManage() const;

  const int64_t max_queue_delay_us_;
  const std::string version_;
  const Management management_;
  Engine* const engine_;
  InferenceFrontend* const frontend_;
  Health* const health_;
  Statistics* const statistics_;
  ModelManager* const models_;
  JobQueue* const loads_;
  JobQueue* const lookups_;
  TransferWatch* const idle_streams_;
  const Callers* const callers_;
};

}  // namespace sluice
