// Tests of the admin service. Tests of answers use a real engine, and tests of calls a scripted
// one.
#include "server/admin/admin_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/common/memory_limits.h"
#include "tests/server/daemon/server_fixture.h"
#include "tests/server/protocol/messages.h"
#include "tests/support/fake_backend.h"
#include "tests/support/gate.h"

namespace sluice {
namespace {

namespace v1 = admin::v1;
using ::testing::HasSubstr;
using testing::TestDaemon;

class AdminTest : public ::testing::Test {
 protected:
  void Infer(const std::string& id, std::vector<int32_t> ids) {
    inference::ModelInferRequest request = testing::IdsRequest(ids);
    request.set_id(id);
    inference::ModelInferResponse response;
    ASSERT_TRUE(daemon_.Infer(request, &response).ok());
  }

  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&,
                                                            Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    return (stub_.get()->*method)(&context, request, response);
  }

  TestDaemon daemon_;
  const std::unique_ptr<v1::Admin::Stub> stub_ = v1::Admin::NewStub(daemon_.Channel());
};

TEST_F(AdminTest, CountsServedRequestsInTheirBuckets) {
  for (int i = 0; i < 5; ++i) Infer(absl::StrCat(i), {1, 2, 3});
  v1::GetBucketsResponse response;
  ASSERT_TRUE(Call(&v1::Admin::Stub::GetBuckets, v1::GetBucketsRequest(), &response).ok());
  ASSERT_EQ(response.models_size(), 1);
  const v1::ModelBuckets& model = response.models(0);
  EXPECT_EQ(model.model_name(), "text");
  EXPECT_EQ(model.strategy(), "adaptive");
  int64_t batches = 0, useful = 0;
  for (const v1::BucketUse& use : model.buckets()) {
    batches += use.batches();
    useful += use.useful_tokens();
  }
  EXPECT_EQ(batches, model.batches());
  EXPECT_EQ(batches, 5);
  EXPECT_EQ(useful, 15);
  EXPECT_GT(model.bucket_fill(), 0);
  ASSERT_EQ(model.lengths_size(), 1);
  EXPECT_EQ(model.lengths(0).tokens(), 3);
}

TEST_F(AdminTest, ErrorsNameTheFieldOrTheModel) {
  v1::GetBucketsRequest request;
  v1::GetBucketsResponse response;
  request.set_model_version("1");
  grpc::Status status = Call(&v1::Admin::Stub::GetBuckets, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("model_version"));
  request.set_model_name("absent");
  EXPECT_EQ(Call(&v1::Admin::Stub::GetBuckets, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);

  v1::ExplainRequest explain;
  v1::ExplainResponse explained;
  EXPECT_THAT(Call(&v1::Admin::Stub::Explain, explain, &explained).error_message(),
              HasSubstr("request_id"));
  explain.set_request_id(std::string(257, 'x'));
  status = Call(&v1::Admin::Stub::Explain, explain, &explained);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("256"));
  explain.set_request_id("never seen");
  EXPECT_EQ(Call(&v1::Admin::Stub::Explain, explain, &explained).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(AdminTest, ExplainsAFinishedRequest) {
  Infer("mine", {1, 2, 3, 4});
  v1::ExplainRequest request;
  request.set_request_id("mine");
  v1::ExplainResponse response;
  ASSERT_TRUE(Call(&v1::Admin::Stub::Explain, request, &response).ok());
  EXPECT_EQ(response.model_name(), "text");
  EXPECT_EQ(response.status(), "OK");
  ASSERT_GE(response.steps_size(), 1);
  EXPECT_EQ(response.steps(0).own_tokens(), 4);
  EXPECT_EQ(response.steps(0).batch_tokens(), 4);
  EXPECT_GE(response.steps(0).bucket().tokens(), 4);
  EXPECT_EQ(response.steps(0).lookup(), "hit");
}

TEST_F(AdminTest, RunReviewGivesTheReason) {
  Infer("a", {1, 2, 3});
  v1::RunReviewRequest request;
  request.set_model_name("text");
  v1::RunReviewResponse response;
  const grpc::Status status = Call(&v1::Admin::Stub::RunReview, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(response.reason().empty());
  EXPECT_GT(response.before_size(), 0);
  request.set_model_name("absent");
  EXPECT_EQ(Call(&v1::Admin::Stub::RunReview, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(AdminTest, SetLadderChoosesTheLadderOfAServedModel) {
  v1::SetLadderRequest request;
  request.set_model_name("text");
  (*request.mutable_options())["strategy"] = "fixed";
  (*request.mutable_options())["fixed_tokens"] = "5,9";
  v1::RunReviewResponse response;
  const grpc::Status status = Call(&v1::Admin::Stub::SetLadder, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(response.changed());
  ASSERT_EQ(response.after_size(), 3);
  EXPECT_EQ(response.after(0).tokens(), 5);
  Infer("a", {1, 2, 3});
  v1::GetBucketsResponse buckets;
  ASSERT_TRUE(Call(&v1::Admin::Stub::GetBuckets, v1::GetBucketsRequest(), &buckets).ok());
  EXPECT_EQ(buckets.models(0).strategy(), "fixed");
  EXPECT_EQ(buckets.models(0).ladder_options().at("fixed_tokens"), "[5, 9]");

  (*request.mutable_options())["strategy"] = "none";
  const grpc::Status wrong = Call(&v1::Admin::Stub::SetLadder, request, &response);
  EXPECT_EQ(wrong.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(wrong.error_message(), ::testing::HasSubstr("strategy: expected one of"));
  request.clear_options();
  request.set_keep(true);
  EXPECT_EQ(Call(&v1::Admin::Stub::SetLadder, request, &response).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  request.set_model_name("absent");
  EXPECT_EQ(Call(&v1::Admin::Stub::SetLadder, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(AdminTest, TryStrategiesNeedsTraffic) {
  v1::TryStrategiesRequest request;
  request.set_model_name("text");
  v1::TryStrategiesResponse response;
  EXPECT_EQ(Call(&v1::Admin::Stub::TryStrategies, request, &response).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  for (int i = 0; i < 100; ++i) Infer(absl::StrCat(i), {1, 2, 3});
  const grpc::Status status = Call(&v1::Admin::Stub::TryStrategies, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.arrivals(), 50);
  EXPECT_GT(response.trials_size(), 5);
  EXPECT_EQ(response.trials(0).name(), "present");
  EXPECT_FALSE(response.best().empty());
}

TEST_F(AdminTest, DescribeStepNeedsAServedModelOnACpu) {
  v1::DescribeStepRequest request;
  v1::DescribeStepResponse response;
  request.set_model_name("absent");
  EXPECT_EQ(Call(&v1::Admin::Stub::DescribeStep, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
  request.set_model_name("text");
  EXPECT_EQ(Call(&v1::Admin::Stub::DescribeStep, request, &response).error_code(),
            grpc::StatusCode::UNIMPLEMENTED)
      << "the fake device has no description";
}

TEST_F(AdminTest, EveryMethodRefusesMalformedProtobufAsInvalid) {
  const auto channel = daemon_.Channel();
  for (const char* method : {"GetBuckets", "RunReview", "SetLadder", "TryStrategies",
                             "DescribeStep", "Explain", "Reload"}) {
    grpc::ClientContext context;
    const grpc::Status status = testing::RawCall(
        channel, std::string("/sluice.admin.v1.Admin/") + method, "\xff\xff", &context);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
  }
}

// An engine whose reviews wait at a gate.
class GatedEngine final : public Engine {
 public:
  absl::Status Exchange(const ModelChange&) override { return absl::OkStatus(); }
  absl::StatusOr<std::shared_ptr<const Model>> Resolve(std::string_view,
                                                       std::string_view) const override {
    return absl::NotFoundError("");
  }
  std::vector<std::shared_ptr<const Model>> Models() const override { return {}; }
  absl::StatusOr<RequestId> Submit(Request, std::shared_ptr<Sink>, MonoTime) override {
    return absl::UnavailableError("");
  }
  void Cancel(RequestId) override {}
  void Drain(MonoTime) override {}
  std::vector<ModelStats> Stats() const override { return {}; }
  absl::StatusOr<ReviewReport> Review(std::string_view, std::string_view, bool) override {
    gate.Pass();
    ReviewReport report;
    report.reason = "reviewed";
    return report;
  }
  absl::StatusOr<Explanation> Explain(std::string_view, std::string_view) const override {
    return absl::NotFoundError("");
  }
  absl::StatusOr<StepDescription> DescribeStep(std::string_view name, std::string_view version,
                                               const StepSizes& step, bool profile) const override {
    auto model = std::make_shared<Model>();
    model->config.kv_dtype = KvType::kInt8;
    model->config_json = absl::StrCat(std::string(name), "/", std::string(version));
    StepDescription description = {.model = std::move(model),
                                   .step = step,
                                   .attention = {AttentionVariant::Kind::kSplit, 3},
                                   .attention_reason = "a reason",
                                   .weight_bytes = {0.5, 4}};
    if (profile) description.seconds = {1, 2};
    return description;
  }
  const BackendInfo& backend_info() const override { return info_; }

  Gate gate;

 private:
  const BackendInfo info_{.device = "fake", .profile = "p", .page_tokens = 1};
};

class SlowReviewTest : public ::testing::Test {
 protected:
  struct PendingCall {
    grpc::ClientContext context;
    v1::RunReviewResponse response;
    std::promise<grpc::Status> promise;
    std::future<grpc::Status> status = promise.get_future();
  };

  SlowReviewTest() {
    context_.health.SetReady(true);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::Admin::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }
  ~SlowReviewTest() override {
    engine_.gate.Open();
    server_->Shutdown();
  }

  // Starts a review. If the call fails, it passes the gate `refused`.
  std::unique_ptr<PendingCall> Start(Gate* refused = nullptr) {
    auto call = std::make_unique<PendingCall>();
    stub_->async()->RunReview(&call->context, &request_, &call->response,
                              [raw = call.get(), refused](grpc::Status status) {
                                if (refused != nullptr && !status.ok()) refused->Pass();
                                raw->promise.set_value(std::move(status));
                              });
    return call;
  }

  const v1::RunReviewRequest request_;
  GatedEngine engine_;
  ServingContext context_{
      WithMemoryShares(ServerOptions()), "1.2.3", {}, {.engine = &engine_, .clock = Clock::Real()}};
  AdminService service_{context_};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Admin::Stub> stub_;
};

TEST_F(SlowReviewTest, ReviewsBeyondTheQueueAreRefusedAtOnce) {
  const auto running = Start();
  engine_.gate.AwaitArrivals(1);
  // One review runs. Of twenty more, eight wait, and the others are refused at once.
  Gate refused;
  refused.Open();
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (int i = 0; i < 20; ++i) calls.push_back(Start(&refused));
  refused.AwaitArrivals(12);
  v1::ExplainRequest explain;
  explain.set_request_id("x");
  v1::ExplainResponse explained;
  grpc::ClientContext context;
  EXPECT_EQ(stub_->Explain(&context, explain, &explained).error_code(), grpc::StatusCode::NOT_FOUND)
      << "other methods answer during the review";
  engine_.gate.Open();
  int ok = 0;
  for (auto& call : calls) {
    const grpc::Status status = call->status.get();
    if (status.ok()) {
      ++ok;
      EXPECT_EQ(call->response.reason(), "reviewed");
      continue;
    }
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(testing::Trailer(call->context, "grpc-retry-pushback-ms"), "1000");
    EXPECT_EQ(testing::Trailer(call->context, "sluice-reason"), "too_busy");
  }
  EXPECT_EQ(ok, 8);
  EXPECT_TRUE(running->status.get().ok());
}

TEST_F(SlowReviewTest, ACancelledCallEndsWhileItsReviewStillRuns) {
  const auto running = Start();
  engine_.gate.AwaitArrivals(1);
  const auto waiting = Start();
  running->context.TryCancel();
  waiting->context.TryCancel();
  EXPECT_EQ(running->status.get().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(waiting->status.get().error_code(), grpc::StatusCode::CANCELLED);
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();  // returns while the review still runs
}

TEST_F(SlowReviewTest, StepsAreDescribedWhileAReviewRuns) {
  const auto running = Start();
  engine_.gate.AwaitArrivals(1);
  v1::DescribeStepRequest request;
  request.set_model_name("m");
  request.set_model_version("2");
  const auto describe = [&] {
    grpc::ClientContext context;
    v1::DescribeStepResponse response;
    const grpc::Status status = stub_->DescribeStep(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  };
  v1::DescribeStepResponse response = describe();
  EXPECT_EQ(response.config_json(), "m/2");
  EXPECT_EQ(response.kv_dtype(), "int8");
  EXPECT_EQ(response.attention_variant(), "split:3");
  EXPECT_EQ(response.attention_reason(), "a reason");
  EXPECT_THAT(response.weight_bytes(), ::testing::ElementsAre(0.5, 4));
  EXPECT_EQ(response.op_seconds_size(), 0);
  request.set_sequences(3);
  request.set_tokens(4);
  request.set_context(5);
  request.set_profile(true);
  response = describe();
  EXPECT_EQ(response.sequences(), 3);
  EXPECT_EQ(response.tokens(), 4);
  EXPECT_EQ(response.context(), 5);
  EXPECT_THAT(response.op_seconds(), ::testing::ElementsAre(1, 2));
  engine_.gate.Open();
  EXPECT_TRUE(running->status.get().ok());
}

TEST_F(SlowReviewTest, ModelsAreManagedWhileStepsFail) {
  context_.health.SetFailing(true);
  engine_.gate.Open();
  const auto call = Start();
  EXPECT_TRUE(call->status.get().ok());
}

TEST_F(SlowReviewTest, AReloadIsRefusedUntilTheServerIsReady) {
  const auto reload = [&] {
    grpc::ClientContext context;
    v1::ReloadResponse response;
    return stub_->Reload(&context, v1::ReloadRequest(), &response);
  };
  context_.health.SetReady(false);
  EXPECT_EQ(reload().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(reload().error_message(), HasSubstr("starting")) << "the handler is not read yet";
  service_.SetReload([] { return ReloadReport(); });
  context_.health.SetReady(true);
  EXPECT_TRUE(reload().ok());
}

TEST_F(SlowReviewTest, ReviewsAreUnavailableUntilTheServerIsReady) {
  context_.health.SetReady(false);
  const auto call = Start();
  EXPECT_EQ(call->status.get().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(testing::Trailer(call->context, "sluice-reason"), "unavailable");
}

}  // namespace
}  // namespace sluice
