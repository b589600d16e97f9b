#include "server/service.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/answer.h"
#include "server/stream_infer.h"
#include "server/unary_infer.h"

namespace sluice {
namespace {

constexpr const char* kExtensions[] = {"model_configuration", "parameters", "schedule_policy",
                                       "statistics"};

absl::Status NoLoading() {
  return absl::UnimplementedError(
      "models are not loaded or unloaded at run time: they are those of the daemon's "
      "configuration");
}

}  // namespace

InferenceService::InferenceService(const ModelTraits& traits, std::string version, Engine* engine,
                                   Edge* edge, Health* health, Statistics* statistics,
                                   TransferWatch* watch)
    : StreamedUnaryService(internal::Grpc::service_full_name(), watch),
      traits_(traits),
      version_(std::move(version)),
      engine_(engine),
      edge_(edge),
      health_(health),
      statistics_(statistics) {
  Stream("ModelInfer", &InferenceService::ModelInfer);
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

InferenceService::Unary* InferenceService::ModelInfer(Context* context, const Bytes* request,
                                                      Bytes* response) {
  return StartUnaryInfer(edge_, context, request, response);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* InferenceService::ModelStreamInfer(
    Context* context) {
  return StartStreamInfer(edge_, context);
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
        if (model.ok()) *answer = DescribeModel(**model, VersionsOf((*model)->name));
        return model.status();
      });
}

InferenceService::Unary* InferenceService::ModelConfig(Context* context, const Bytes* request,
                                                       Bytes* response) {
  return Answer<inference::ModelConfigRequest, inference::ModelConfigResponse>(
      context, *request, response, [this](const auto& message, auto* answer) {
        const auto model = engine_->Resolve(message.name(), message.version());
        if (model.ok()) *answer->mutable_config() = ConfigureModel(**model, traits_);
        return model.status();
      });
}

InferenceService::Unary* InferenceService::ModelStatistics(Context* context, const Bytes* request,
                                                           Bytes* response) {
  return Answer<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>(
      context, *request, response, [this](const auto& message, auto* answer) {
        std::shared_ptr<const Model> only;
        if (!message.name().empty()) {
          auto model = engine_->Resolve(message.name(), message.version());
          if (!model.ok()) return model.status();
          only = *std::move(model);
        }
        for (const ModelStats& stats : engine_->Stats()) {
          if (only != nullptr && only != stats.model) continue;
          *answer->add_model_stats() = statistics_->Describe(stats);
        }
        return absl::OkStatus();
      });
}

InferenceService::Unary* InferenceService::RepositoryIndex(Context* context, const Bytes* request,
                                                           Bytes* response) {
  return Answer<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>(
      context, *request, response, [this](const auto& message, auto* answer) {
        if (!message.repository_name().empty()) {
          return absl::InvalidArgumentError(
              "repository_name must be empty: there is one repository");
        }
        // The engine knows a model from the moment that it is ready.
        for (const std::shared_ptr<const Model>& model : engine_->Models()) {
          auto* entry = answer->add_models();
          entry->set_name(model->name);
          entry->set_version(absl::StrCat(model->version));
          entry->set_state("READY");
        }
        return absl::OkStatus();
      });
}

InferenceService::Unary* InferenceService::RepositoryModelLoad(Context* context,
                                                               const Bytes* request,
                                                               Bytes* response) {
  return Answer<inference::RepositoryModelLoadRequest, inference::RepositoryModelLoadResponse>(
      context, *request, response, [](const auto& message, auto* answer) { return NoLoading(); });
}

InferenceService::Unary* InferenceService::RepositoryModelUnload(Context* context,
                                                                 const Bytes* request,
                                                                 Bytes* response) {
  return Answer<inference::RepositoryModelUnloadRequest, inference::RepositoryModelUnloadResponse>(
      context, *request, response, [](const auto& message, auto* answer) { return NoLoading(); });
}

}  // namespace sluice
