#include "server/admin/admin_service.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
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
using admin::v1::ReloadRequest;
using admin::v1::ReloadResponse;
using admin::v1::RunReviewRequest;
using admin::v1::RunReviewResponse;
using admin::v1::SetLadderRequest;
using admin::v1::TryStrategiesRequest;
using admin::v1::TryStrategiesResponse;

// The number of calls about ladders that may wait, and of calls of DescribeStep. Each kind runs one
// at a time, so a longer queue would only mean longer waits; callers should try again later.
constexpr size_t kMaxWaiting = 8;

}  // namespace

AdminService::AdminService(ServingContext& context, const Callers* callers)
    : AnsweringService("sluice.admin.v1.Admin", &context.admin.transfers, callers),
      context_(context),
      reviewer_(kMaxWaiting),
      describer_(kMaxWaiting) {
  AddLadderMethods();
  AddOtherMethods();
}

absl::Status AdminService::FillBuckets(const GetBucketsRequest& request,
                                       GetBucketsResponse* response) const {
  std::shared_ptr<const Model> only;
  if (!request.model_name().empty()) {
    SLUICE_ASSIGN_OR_RETURN(
        only, context_.engine->Resolve(request.model_name(), request.model_version()));
  } else if (!request.model_version().empty()) {
    return absl::InvalidArgumentError(
        "model_version: set without model_name; set both, or only model_name");
  }
  const MonoTime now = context_.clock->Now();
  for (const ModelStats& stats : context_.engine->Stats()) {
    if (only != nullptr && only != stats.model) continue;
    admin::v1::ModelBuckets* const model = response->add_models();
    const std::vector<HistoryStretch> history = context_.history.Of(stats, now);
    *model = DescribeBuckets(stats, context_.engine->backend_info(), context_.engine_options, now);
    AddLastHour(LastHour(history, now), stats, model);
    if (request.history()) AddHistory(history, now, model);
  }
  return absl::OkStatus();
}

void AdminService::AddLadderMethods() {
  Answer<GetBucketsRequest, GetBucketsResponse>(
      "GetBuckets",
      [this](const auto& message, auto* answer) { return FillBuckets(message, answer); });
  AnswerLater<RunReviewRequest, RunReviewResponse>(
      "RunReview", [this] { return context_.health.CheckRunning(); }, &reviewer_,
      [engine = context_.engine](const auto& message, auto* answer) {
        const absl::StatusOr<ReviewReport> report =
            engine->Review(message.model_name(), message.model_version(), message.force());
        if (report.ok()) *answer = DescribeReview(*report);
        return report.status();
      });
  AnswerLater<SetLadderRequest, RunReviewResponse>(
      "SetLadder", [this] { return context_.health.CheckRunning(); }, &reviewer_,
      [engine = context_.engine](const auto& message, auto* answer) {
        const LadderChoice choice(message.options().begin(), message.options().end());
        SLUICE_ASSIGN_OR_RETURN(const ReviewReport report,
                                engine->ChooseLadder(message.model_name(), message.model_version(),
                                                     choice, message.keep()));
        *answer = DescribeReview(report);
        return absl::OkStatus();
      });
  AnswerLater<TryStrategiesRequest, TryStrategiesResponse>(
      "TryStrategies", [this] { return context_.health.CheckRunning(); }, &reviewer_,
      [engine = context_.engine](const auto& message, auto* answer) {
        SLUICE_ASSIGN_OR_RETURN(
            const StrategyTrials trials,
            engine->TryStrategies(message.model_name(), message.model_version()));
        *answer = DescribeTrials(trials);
        return absl::OkStatus();
      });
}

void AdminService::AddOtherMethods() {
  AnswerLater<DescribeStepRequest, DescribeStepResponse>(
      "DescribeStep", [this] { return context_.health.CheckRunning(); }, &describer_,
      [engine = context_.engine](const auto& message, auto* answer) {
        const StepSizes step = {.sequences = message.sequences(),
                                .tokens = message.tokens(),
                                .context = message.context()};
        SLUICE_ASSIGN_OR_RETURN(const StepDescription description,
                                engine->DescribeStep(message.model_name(), message.model_version(),
                                                     step, message.profile()));
        *answer = DescribeStepMessage(description);
        return absl::OkStatus();
      });
  Answer<ExplainRequest, ExplainResponse>(
      "Explain", [this](const ExplainRequest& message, ExplainResponse* answer) -> absl::Status {
        const std::string& id = message.request_id();
        if (id.empty())
          return absl::InvalidArgumentError("request_id: empty; set the id of a request");
        if (id.size() > kMaxRequestIdBytes) {
          return absl::InvalidArgumentError(absl::StrCat(
              "request_id: has ", id.size(), " bytes; the limit is ", kMaxRequestIdBytes));
        }
        const absl::StatusOr<Explanation> explanation =
            context_.engine->Explain(id, message.model_name());
        if (explanation.ok()) *answer = DescribeRequest(*explanation);
        return explanation.status();
      });
  AnswerLater<ReloadRequest, ReloadResponse>(
      "Reload",
      // SetReload is called before the daemon is running, so the handler is read only afterwards.
      [this] {
        SLUICE_RETURN_IF_ERROR(context_.health.CheckRunning());
        return *reload_ == nullptr ? absl::UnavailableError("the daemon cannot reload")
                                   : absl::OkStatus();
      },
      &*context_.loads,
      [reload = reload_](const auto& message, auto* answer) {
        SLUICE_ASSIGN_OR_RETURN(const ReloadReport report, (*reload)());
        for (const std::string& path : report.applied) answer->add_applied(path);
        for (const std::string& path : report.needs_restart) answer->add_needs_restart(path);
        for (const std::string& model : report.models.loaded) answer->add_loaded_models(model);
        for (const std::string& model : report.models.withdrawn) {
          answer->add_withdrawn_models(model);
        }
        for (const std::string& model : report.models.failed) answer->add_failed_models(model);
        return absl::OkStatus();
      });
}

}  // namespace sluice
