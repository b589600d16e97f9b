#include "server/inference/service.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "server/calls/answer.h"
#include "server/calls/answer_later.h"
#include "server/common/status.h"
#include "server/inference/stream_infer.h"
#include "server/inference/unary_infer.h"
#include "server/models/repository_calls.h"

namespace sluice {
namespace {

constexpr const char* kExtensions[] = {"model_configuration", "model_repository", "parameters",
                                       "schedule_policy", "statistics"};

// A stream that is refused: it ends before anything is read.
class RefusedStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit RefusedStream(grpc::Status status) { Finish(std::move(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

InferenceService::InferenceService(int64_t max_queue_delay_us, std::string version,
                                   Management management, const InferenceParts& parts)
    : StreamedUnaryService(internal::Grpc::service_full_name(), parts.transfers, parts.callers),
      max_queue_delay_us_(max_queue_delay_us),
      version_(std::move(version)),
      management_(management),
      engine_(parts.engine),
      frontend_(parts.frontend),
      health_(parts.health),
      statistics_(parts.statistics),
      models_(parts.models),
      loads_(parts.loads),
      lookups_(parts.lookups),
      idle_streams_(parts.idle_streams),
      callers_(parts.callers) {
  Stream("ModelInfer", [this](Context* context, const Bytes* request, Bytes* response,
                              const std::shared_ptr<const Caller>& caller) {
    return StartUnaryInfer(frontend_, context, request, response, caller);
  });
  Stream("ServerLive", &InferenceService::ServerLive);
  Stream("ServerReady", &InferenceService::ServerReady);
  Stream("ServerMetadata", &InferenceService::ServerMetadata);
  Stream("ModelReady", &InferenceService::ModelReady);
  Stream("ModelMetadata", &InferenceService::ModelMetadata);
  Stream("ModelConfig", &InferenceService::ModelConfig);
  Stream("ModelStatistics", &InferenceService::ModelStatistics);
  Stream("RepositoryIndex", &InferenceService::RepositoryIndex);
  Stream("RepositoryModelLoad", &InferenceService::RepositoryModelLoad);
  Stream("RepositoryModelUnload", &InferenceService::RepositoryModelUnload);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* InferenceService::ModelStreamInfer(
    Context* context) {
  if (callers_ != nullptr) {
    const absl::Status known = callers_->Identify(*context).status();
    if (!known.ok()) return new RefusedStream(FinishStatus(known, {}, context));
  }
  return StartStreamInfer(frontend_, idle_streams_, context);
}

InferenceService::Unary* InferenceService::ServerLive(Context* context, const Bytes* request,
                                                      Bytes* response) {
  return Answer<inference::ServerLiveRequest, inference::ServerLiveResponse>(
      context, *request, response, [](const auto& message, auto* answer) {
        answer->set_live(true);
        return absl::OkStatus();
      });
}

InferenceService::Unary* InferenceService::ServerReady(Context* context, const Bytes* request,
                                                       Bytes* response) {
  return Answer<inference::ServerReadyRequest, inference::ServerReadyResponse>(
      context, *request, response, [this](const auto& message, auto* answer) {
        answer->set_ready(health_->ready());
        return absl::OkStatus();
      });
}

InferenceService::Unary* InferenceService::ServerMetadata(Context* context, const Bytes* request,
                                                          Bytes* response) {
  return Answer<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
      context, *request, response, [this](const auto& message, auto* answer) {
        answer->set_name("sluice");
        answer->set_version(version_);
        for (const char* extension : kExtensions) answer->add_extensions(extension);
        return absl::OkStatus();
      });
}

InferenceService::Unary* InferenceService::ModelReady(Context* context, const Bytes* request,
                                                      Bytes* response) {
  return Answer<inference::ModelReadyRequest, inference::ModelReadyResponse>(
      context, *request, response, [this](const auto& message, auto* answer) {
        const bool served = engine_->Resolve(message.name(), message.version()).ok();
        answer->set_ready(served && health_->ready());
        return absl::OkStatus();
      });
}

std::vector<int64_t> InferenceService::VersionsOf(const std::string& name) const {
  std::vector<int64_t> versions;
  for (const std::shared_ptr<const Model>& model : engine_->Models()) {
    if (model->name == name) versions.push_back(model->version);
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

InferenceService::Unary* InferenceService::ModelMetadata(Context* context, const Bytes* request,
                                                         Bytes* response) {
  return Answer<inference::ModelMetadataRequest, inference::ModelMetadataResponse>(
      context, *request, response, [this](const auto& message, auto* answer) {
        const auto model = engine_->Resolve(message.name(), message.version());
        if (!model.ok()) return model.status();
        *answer = DescribeModel(**model, VersionsOf((*model)->name));
        for (const ModelStats& stats : engine_->Stats()) {
          if (stats.model != *model) continue;
          (*answer->mutable_properties())["profile"] = stats.profile;
          (*answer->mutable_properties())["attention"] = AttentionVariantName(stats.attention);
          (*answer->mutable_properties())["ready_after"] =
              absl::StrFormat("%.1fs", Seconds(stats.time_to_ready));
          if (!stats.kernels.empty()) (*answer->mutable_properties())["kernels"] = stats.kernels;
        }
        return absl::OkStatus();
      });
}

InferenceService::Unary* InferenceService::ModelConfig(Context* context, const Bytes* request,
                                                       Bytes* response) {
  return Answer<inference::ModelConfigRequest, inference::ModelConfigResponse>(
      context, *request, response, [this](const auto& message, auto* answer) {
        const auto model = engine_->Resolve(message.name(), message.version());
        if (model.ok()) {
          *answer->mutable_config() =
              ConfigureModel(**model, frontend_->max_rows(), max_queue_delay_us_);
        }
        return model.status();
      });
}

InferenceService::Unary* InferenceService::ModelStatistics(Context* context, const Bytes* request,
                                                           Bytes* response) {
  return Answer<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>(
      context, *request, response, [this](const auto& message, auto* answer) {
        std::shared_ptr<const Model> only;
        if (!message.name().empty()) {
          SLUICE_ASSIGN_OR_RETURN(only, engine_->Resolve(message.name(), message.version()));
        }
        for (const ModelStats& stats : engine_->Stats()) {
          if (only != nullptr && only != stats.model) continue;
          *answer->add_model_stats() = statistics_->Describe(stats);
        }
        return absl::OkStatus();
      });
}

absl::Status InferenceService::MayManage() const {
  if (management_ == Management::kDenied) {
    return absl::PermissionDeniedError(
        "models are loaded and unloaded at the daemon's admin address, server.admin.address");
  }
  if (health_->ready()) return absl::OkStatus();
  return absl::UnavailableError("not ready, or draining");
}

InferenceService::Unary* InferenceService::RepositoryIndex(Context* context, const Bytes* request,
                                                           Bytes* response) {
  return AnswerLater<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>(
      context, *request, response, absl::OkStatus(), lookups_,
      [models = models_, reasons = management_ == Management::kAllowed
                                       ? Reasons::kInFull
                                       : Reasons::kInAWord](const auto& message, auto* answer) {
        return ListModels(message, models, reasons, answer);
      });
}

InferenceService::Unary* InferenceService::RepositoryModelLoad(Context* context,
                                                               const Bytes* request,
                                                               Bytes* response) {
  return AnswerLater<inference::RepositoryModelLoadRequest, inference::RepositoryModelLoadResponse>(
      context, *request, response, MayManage(), loads_,
      [models = models_](const auto& message, auto* answer) {
        return LoadModelOf(message, models);
      });
}

InferenceService::Unary* InferenceService::RepositoryModelUnload(Context* context,
                                                                 const Bytes* request,
                                                                 Bytes* response) {
  return AnswerLater<inference::RepositoryModelUnloadRequest,
                     inference::RepositoryModelUnloadResponse>(
      context, *request, response, MayManage(), loads_,
      [models = models_](const auto& message, auto* answer) {
        return UnloadModelOf(message, models);
      });
}

}  // namespace sluice
