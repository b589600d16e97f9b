#include "server/admin/admin_service.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/calls/answer.h"
#include "server/calls/answer_later.h"
#include "server/protocol/describe/admin_messages.h"
#include "server/protocol/request/validate.h"

namespace sluice {
namespace {

using admin::v1::DescribeStepRequest;
using admin::v1::DescribeStepResponse;
using admin::v1::ExplainRequest;
using admin::v1::ExplainResponse;
using admin::v1::GetBucketsRequest;
using admin::v1::GetBucketsResponse;
using admin::v1::OptimizeBucketsRequest;
using admin::v1::OptimizeBucketsResponse;
using admin::v1::ReloadRequest;
using admin::v1::ReloadResponse;
using admin::v1::SetLadderRequest;
using admin::v1::TryStrategiesRequest;
using admin::v1::TryStrategiesResponse;

// The number of reviews that may wait, and of descriptions of steps. They run one at a time, so a
// longer queue would only mean longer waits; callers should try again later.
constexpr size_t kMaxWaiting = 8;

}  // namespace

AdminService::AdminService(EngineOptions options, Engine* engine, Clock* clock,
                           const BucketHistory* history, const Health* health, JobQueue* loads,
                           TransferWatch* watch, const Callers* callers)
    : StreamedUnaryService(internal::AdminGrpc::service_full_name(), watch, callers),
      options_(std::move(options)),
      engine_(engine),
      clock_(clock),
      history_(history),
      health_(health),
      loads_(loads),
      optimizer_(kMaxWaiting),
      describer_(kMaxWaiting) {
  Stream("GetBuckets", &AdminService::GetBuckets);
  Stream("OptimizeBuckets", &AdminService::OptimizeBuckets);
  Stream("SetLadder", &AdminService::SetLadder);
  Stream("TryStrategies", &AdminService::TryStrategies);
  Stream("DescribeStep", &AdminService::DescribeStep);
  Stream("Explain", &AdminService::Explain);
  Stream("Reload", &AdminService::Reload);
}

absl::Status AdminService::FillBuckets(const GetBucketsRequest& request,
                                       GetBucketsResponse* response) const {
  std::shared_ptr<const Model> only;
  if (!request.model_name().empty()) {
    SLUICE_ASSIGN_OR_RETURN(only, engine_->Resolve(request.model_name(), request.model_version()));
  } else if (!request.model_version().empty()) {
    return absl::InvalidArgumentError("model_version: given without model_name");
  }
  const MonoTime now = clock_->Now();
  for (const ModelStats& stats : engine_->Stats()) {
    if (only != nullptr && only != stats.model) continue;
    admin::v1::ModelBuckets* const model = response->add_models();
    *model = DescribeBuckets(stats, engine_->backend_info(), options_, now);
    if (request.history()) AddHistory(history_->Of(stats, now), now, model);
  }
  return absl::OkStatus();
}

AdminService::Unary* AdminService::GetBuckets(Context* context, const Bytes* request,
                                              Bytes* response) {
  return Answer<GetBucketsRequest, GetBucketsResponse>(
      context, *request, response,
      [this](const auto& message, auto* answer) { return FillBuckets(message, answer); });
}

absl::Status AdminService::Ready() const {
  return health_->ready() ? absl::OkStatus() : absl::UnavailableError("not ready, or draining");
}

AdminService::Unary* AdminService::OptimizeBuckets(Context* context, const Bytes* request,
                                                   Bytes* response) {
  return AnswerLater<OptimizeBucketsRequest, OptimizeBucketsResponse>(
      context, *request, response, Ready(), &optimizer_,
      [engine = engine_](const auto& message, auto* answer) {
        const absl::StatusOr<OptimizeReport> report =
            engine->Optimize(message.model_name(), message.model_version(), message.force());
        if (report.ok()) *answer = DescribeReview(*report);
        return report.status();
      });
}

AdminService::Unary* AdminService::SetLadder(Context* context, const Bytes* request,
                                             Bytes* response) {
  return AnswerLater<SetLadderRequest, OptimizeBucketsResponse>(
      context, *request, response, Ready(), &optimizer_,
      [engine = engine_](const auto& message, auto* answer) {
        const LadderChoice choice(message.options().begin(), message.options().end());
        SLUICE_ASSIGN_OR_RETURN(const OptimizeReport report,
                                engine->ChooseLadder(message.model_name(), message.model_version(),
                                                     choice, message.keep()));
        *answer = DescribeReview(report);
        return absl::OkStatus();
      });
}

AdminService::Unary* AdminService::TryStrategies(Context* context, const Bytes* request,
                                                 Bytes* response) {
  return AnswerLater<TryStrategiesRequest, TryStrategiesResponse>(
      context, *request, response, Ready(), &optimizer_,
      [engine = engine_](const auto& message, auto* answer) {
        SLUICE_ASSIGN_OR_RETURN(
            const StrategyTrials trials,
            engine->TryStrategies(message.model_name(), message.model_version()));
        *answer = DescribeTrials(trials);
        return absl::OkStatus();
      });
}

AdminService::Unary* AdminService::DescribeStep(Context* context, const Bytes* request,
                                                Bytes* response) {
  return AnswerLater<DescribeStepRequest, DescribeStepResponse>(
      context, *request, response, Ready(), &describer_,
      [engine = engine_](const auto& message, auto* answer) {
        const StepSizes step = {.sequences = message.sequences(),
                                .tokens = message.tokens(),
                                .context = message.context()};
        SLUICE_ASSIGN_OR_RETURN(const StepDescription description,
                                engine->DescribeStep(message.model_name(), message.model_version(),
                                                     step, message.profile()));
        *answer = DescribeStepMessage(description);
        return absl::OkStatus();
      });
}

AdminService::Unary* AdminService::Reload(Context* context, const Bytes* request, Bytes* response) {
  absl::Status admitted = Ready();
  if (reload_ == nullptr) admitted = absl::UnavailableError("nothing to reload");
  return AnswerLater<ReloadRequest, ReloadResponse>(
      context, *request, response, admitted, loads_,
      [reload = reload_](const auto& message, auto* answer) {
        SLUICE_ASSIGN_OR_RETURN(const ReloadReport report, reload());
        for (const std::string& path : report.applied) answer->add_applied(path);
        for (const std::string& path : report.needs_restart) answer->add_needs_restart(path);
        return absl::OkStatus();
      });
}

AdminService::Unary* AdminService::Explain(Context* context, const Bytes* request,
                                           Bytes* response) {
  return Answer<ExplainRequest, ExplainResponse>(
      context, *request, response,
      [this](const ExplainRequest& message, ExplainResponse* answer) -> absl::Status {
        const std::string& id = message.request_id();
        if (id.empty()) return absl::InvalidArgumentError("request_id: empty");
        if (id.size() > kMaxRequestIdBytes) {
          return absl::InvalidArgumentError(absl::StrCat(
              "request_id: has ", id.size(), " bytes; the limit is ", kMaxRequestIdBytes));
        }
        const absl::StatusOr<Explanation> explanation = engine_->Explain(id, message.model_name());
        if (explanation.ok()) *answer = DescribeRequest(*explanation);
        return explanation.status();
      });
}

}  // namespace sluice
