#include "server/inference/service.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "server/common/status.h"
#include "server/inference/stream_session.h"
#include "server/inference/unary_infer.h"
#include "server/models/repository_calls.h"
#include "server/protocol/describe/metadata.h"

namespace sluice {
namespace {

constexpr const char* kExtensions[] = {"model_configuration", "model_repository", "parameters",
                                       "schedule_policy", "statistics"};

// Returns the served versions of a model name, ascending.
std::vector<int64_t> VersionsOf(const std::string& name, const Engine& engine) {
  std::vector<int64_t> versions;
  for (const std::shared_ptr<const Model>& model : engine.Models()) {
    if (model->name == name) versions.push_back(model->version);
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

}  // namespace

InferenceService::InferenceService(ServingContext& context, InferenceFrontend& frontend,
                                   const Plane& plane)
    : AnsweringService("inference.GRPCInferenceService", plane.transfers, plane.callers),
      context_(context),
      frontend_(frontend),
      plane_(plane) {
  using Context = grpc::CallbackServerContext;
  Stream("ModelInfer", [this](Context* call, const auto* request, auto* response,
                              const std::shared_ptr<const Caller>& caller) {
    return StartUnaryInfer(&frontend_, call, request, response, caller);
  });
  StreamAnswers("ModelStreamInfer", [this](Context* call) -> Reactor* {
    std::string caller;
    if (plane_.callers != nullptr) {
      const auto known = plane_.callers->Identify(*call);
      if (!known.ok()) return RefuseStream(known.status(), call);
      caller = (*known)->name();
    }
    return StartStreamInfer(
        {.frontend = &frontend_, .callers = plane_.callers, .idle = plane_.idle_streams},
        std::move(caller), call);
  });
  AddServerMethods();
  AddModelMethods();
  AddRepositoryMethods();
}

void InferenceService::AddServerMethods() {
  Answer<inference::ServerLiveRequest, inference::ServerLiveResponse>(
      "ServerLive", [](const auto& message, auto* answer) {
        answer->set_live(true);
        return absl::OkStatus();
      });
  Answer<inference::ServerReadyRequest, inference::ServerReadyResponse>(
      "ServerReady", [this](const auto& message, auto* answer) {
        answer->set_ready(context_.health.ready());
        return absl::OkStatus();
      });
  Answer<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
      "ServerMetadata", [this](const auto& message, auto* answer) {
        answer->set_name("sluice");
        answer->set_version(context_.version);
        for (const char* extension : kExtensions) answer->add_extensions(extension);
        // The same at all addresses of this daemon, so that a client can compare two addresses.
        answer->add_extensions(absl::StrCat("instance:", context_.instance));
        return absl::OkStatus();
      });
}

void InferenceService::AddModelMethods() {
  Answer<inference::ModelReadyRequest, inference::ModelReadyResponse>(
      "ModelReady", [this](const auto& message, auto* answer) {
        const bool served = context_.engine->Resolve(message.name(), message.version()).ok();
        answer->set_ready(served && context_.health.ready());
        return absl::OkStatus();
      });
  Answer<inference::ModelMetadataRequest, inference::ModelMetadataResponse>(
      "ModelMetadata", [this](const auto& message, auto* answer) {
        const auto found = context_.engine->Find(message.name(), message.version());
        if (!found.ok()) {
          return context_.models.WithFailedLoad(found.status(), message.name(), message.version());
        }
        const Model& model = *found->model;
        const NamedModel named = {model, found->head.get()};
        *answer = DescribeModel(named, VersionsOf(model.name, *context_.engine));
        if (!model.content_hash.empty()) {
          (*answer->mutable_properties())["fingerprint"] = model.content_hash;
        }
        for (const ModelStats& stats : context_.engine->Stats()) {
          if (stats.model != found->model) continue;
          (*answer->mutable_properties())["profile"] = stats.profile;
          (*answer->mutable_properties())["attention"] = AttentionVariantName(stats.attention);
          (*answer->mutable_properties())["ready_after"] =
              absl::StrFormat("%.1fs", Seconds(stats.time_to_ready));
          if (!stats.kernels.empty()) (*answer->mutable_properties())["kernels"] = stats.kernels;
          if (!stats.dense_algorithms.empty()) {
            (*answer->mutable_properties())["dense_algorithms"] =
                absl::StrJoin(stats.dense_algorithms, "\n");
          }
          if (const std::string limit = DescribeMemoryLimit(stats); !limit.empty()) {
            (*answer->mutable_properties())["memory_limit"] = limit;
          }
        }
        return absl::OkStatus();
      });
  Answer<inference::ModelConfigRequest, inference::ModelConfigResponse>(
      "ModelConfig", [this](const auto& message, auto* answer) {
        const auto found = context_.engine->Find(message.name(), message.version());
        if (found.ok()) {
          *answer->mutable_config() =
              ConfigureModel({*found->model, found->head.get()}, frontend_.max_rows(),
                             context_.engine_options.batch.max_queue_delay_us);
        }
        return context_.models.WithFailedLoad(found.status(), message.name(), message.version());
      });
  Answer<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>(
      "ModelStatistics", [this](const auto& message, auto* answer) {
        std::shared_ptr<const Model> only;
        if (!message.name().empty()) {
          SLUICE_ASSIGN_OR_RETURN(only,
                                  context_.engine->Resolve(message.name(), message.version()));
        }
        for (const ModelStats& stats : context_.engine->Stats()) {
          // Without a version, the statistics of all versions.
          const bool wanted = only == nullptr || only == stats.model ||
                              (message.version().empty() && only->name == stats.model->name);
          if (!wanted) continue;
          *answer->add_model_stats() = context_.statistics->Describe(stats);
        }
        return absl::OkStatus();
      });
}

absl::Status InferenceService::MayManage() const {
  if (!plane_.manages_models) {
    return absl::PermissionDeniedError(
        "models can be loaded and unloaded only at the daemon's admin address, "
        "server.admin.address");
  }
  return context_.health.CheckRunning();
}

void InferenceService::AddRepositoryMethods() {
  AnswerLater<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>(
      "RepositoryIndex", [] { return absl::OkStatus(); }, &context_.lookups,
      [models = &context_.models,
       reasons = plane_.manages_models ? Reasons::kInFull : Reasons::kInAWord](const auto& message,
                                                                               auto* answer) {
        return ListModels(message, models, reasons, answer);
      });
  AnswerLater<inference::RepositoryModelLoadRequest, inference::RepositoryModelLoadResponse>(
      "RepositoryModelLoad", [this] { return MayManage(); }, &*context_.loads,
      [models = &context_.models](const auto& message, auto* answer) {
        return LoadModelOf(message, models);
      });
  AnswerLater<inference::RepositoryModelUnloadRequest, inference::RepositoryModelUnloadResponse>(
      "RepositoryModelUnload", [this] { return MayManage(); }, &*context_.loads,
      [models = &context_.models](const auto& message, auto* answer) {
        return UnloadModelOf(message, models);
      });
}

}  // namespace sluice
