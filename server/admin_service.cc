#include "server/admin_service.h"

#include <atomic>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/admin_messages.h"
#include "server/answer.h"
#include "server/validate.h"

namespace sluice {
namespace {

using admin::v1::ExplainRequest;
using admin::v1::ExplainResponse;
using admin::v1::GetBucketsRequest;
using admin::v1::GetBucketsResponse;
using admin::v1::OptimizeBucketsRequest;

// Reviews take turns, so that more would only wait; callers try again.
constexpr size_t kMaxWaitingReviews = 8;
constexpr absl::Duration kReviewPushback = absl::Seconds(1);

// A review that a caller waits for. Whoever claims the ticket finishes the call: the review's end, or
// the caller that gave up.
class OptimizeCall final : public grpc::ServerUnaryReactor {
 public:
  OptimizeCall(Engine* engine, grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : engine_(engine), context_(context), response_(response) {}

  void Start(const grpc::ByteBuffer& bytes, const Health& health, WorkThread* optimizer) {
    OptimizeBucketsRequest request;
    absl::Status status = Parse(bytes, &request);
    if (status.ok() && !health.ready()) status = absl::UnavailableError("not ready, or draining");
    if (!status.ok()) return Refuse(status);
    // From here on the call may end, and this object with it, at any time.
    const std::shared_ptr<Ticket> ticket = ticket_;
    const bool posted =
        optimizer->Post([engine = engine_, ticket, request] { Review(engine, request, ticket); });
    if (!posted) Refuse(absl::ResourceExhaustedError("too many reviews wait"));
  }

  void OnCancel() override {
    if (OptimizeCall* call = Claim(*ticket_)) call->End(absl::CancelledError("given up"));
  }
  void OnDone() override { delete this; }

 private:
  struct Ticket {
    explicit Ticket(OptimizeCall* owner) : call(owner) {}
    std::atomic<OptimizeCall*> call;
  };

  static OptimizeCall* Claim(Ticket& ticket) { return ticket.call.exchange(nullptr); }

  static void Review(Engine* engine, const OptimizeBucketsRequest& request,
                     const std::shared_ptr<Ticket>& ticket) {
    if (ticket->call.load() == nullptr) return;  // the caller gave up while it waited
    const absl::StatusOr<OptimizeReport> report =
        engine->Optimize(request.model_name(), request.model_version(), request.force());
    OptimizeCall* const call = Claim(*ticket);
    if (call == nullptr) return;
    call->End(report.ok() ? Serialize(DescribeReview(*report), call->response_) : report.status());
  }

  void Refuse(const absl::Status& status) {
    Claim(*ticket_);
    End(status);
  }

  void End(const absl::Status& status) { Finish(FinishStatus(status, kReviewPushback, context_)); }

  Engine* const engine_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  const std::shared_ptr<Ticket> ticket_ = std::make_shared<Ticket>(this);
};

}  // namespace

AdminService::AdminService(EngineTraits traits, Engine* engine, Clock* clock, const Health* health,
                           TransferWatch* watch)
    : StreamedUnaryService(internal::AdminGrpc::service_full_name(), watch),
      traits_(std::move(traits)),
      engine_(engine),
      clock_(clock),
      health_(health),
      optimizer_(kMaxWaitingReviews) {
  Stream("GetBuckets", &AdminService::GetBuckets);
  Stream("OptimizeBuckets", &AdminService::OptimizeBuckets);
  Stream("Explain", &AdminService::Explain);
}

absl::Status AdminService::FillBuckets(const GetBucketsRequest& request,
                                       GetBucketsResponse* response) const {
  std::shared_ptr<const Model> only;
  if (!request.model_name().empty()) {
    auto model = engine_->Resolve(request.model_name(), request.model_version());
    if (!model.ok()) return model.status();
    only = *std::move(model);
  } else if (!request.model_version().empty()) {
    return absl::InvalidArgumentError("model_version: given without model_name");
  }
  const MonoTime now = clock_->Now();
  for (const ModelStats& stats : engine_->Stats()) {
    if (only != nullptr && only != stats.model) continue;
    *response->add_models() = DescribeBuckets(stats, engine_->backend_info(), traits_, now);
  }
  return absl::OkStatus();
}

AdminService::Unary* AdminService::GetBuckets(Context* context, const Bytes* request,
                                              Bytes* response) {
  return Answer<GetBucketsRequest, GetBucketsResponse>(
      context, *request, response,
      [this](const auto& message, auto* answer) { return FillBuckets(message, answer); });
}

AdminService::Unary* AdminService::OptimizeBuckets(Context* context, const Bytes* request,
                                                   Bytes* response) {
  auto* call = new OptimizeCall(engine_, context, response);
  call->Start(*request, *health_, &optimizer_);
  return call;
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
        const absl::StatusOr<Explanation> explanation = engine_->Explain(id);
        if (explanation.ok()) *answer = DescribeRequest(*explanation);
        return explanation.status();
      });
}

}  // namespace sluice
