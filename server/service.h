// The inference service: every method raw, so that malformed Protobuf gets INVALID_ARGUMENT (see
// wire.h). Inference is in unary_infer and stream_infer; the other methods answer at once.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "proto/inference.grpc.pb.h"
#include "server/edge.h"
#include "server/health.h"
#include "server/metadata.h"
#include "server/statistics.h"
#include "server/streamed_unary.h"

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

// Thread-safe; no method blocks. Owns nothing.
class InferenceService final : public StreamedUnaryService<internal::RawService> {
 public:
  // `watch` bounds how long the messages of unary calls may take.
  InferenceService(const ModelTraits& traits, std::string version, Engine* engine, Edge* edge,
                   Health* health, Statistics* statistics, TransferWatch* watch);

  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  using Unary = grpc::ServerUnaryReactor;

  Unary* ModelInfer(Context* context, const Bytes* request, Bytes* response) override;
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

  const ModelTraits traits_;
  const std::string version_;
  Engine* const engine_;
  Edge* const edge_;
  Health* const health_;
  Statistics* const statistics_;
};

}  // namespace sluice
