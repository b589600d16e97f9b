// Tests the choice of the thread that makes a reply. The test acts as the engine.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>

#include "tests/server/inference/stream_fixture.h"
#include "tests/support/gate.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;
using inference::ModelInferResponse;
using testing::AddInput;
using testing::Finished;
using testing::Generating;
using testing::ScriptedEngine;
using testing::SetInt;

class Held : public Delivery {
 public:
  explicit Held(Gate* gate) : gate_(gate) {}
  void Deliver() override { gate_->Pass(); }

 private:
  Gate* const gate_;
};

class UnaryReplyTest : public testing::StreamTest {
 protected:
  // Blocks the only reply thread.
  UnaryReplyTest() {
    replies_.OfNextCall()->Post(std::make_shared<Held>(&gate_));
    gate_.AwaitArrivals(1);
  }
  ~UnaryReplyTest() override { gate_.Open(); }

  // `client` is the name that a gateway states for its own caller.
  std::future<grpc::Status> Call(const ModelInferRequest& request, const std::string& client = "") {
    return std::async(std::launch::async, [this, request, client] {
      grpc::ClientContext context;
      if (!client.empty()) context.AddMetadata("sluice-client", client);
      ModelInferResponse response;
      return stub_->ModelInfer(&context, request, &response);
    });
  }

  // Ends the request in a step that ends `together` requests.
  void End(const std::string& id, int64_t together, int rows = 1) {
    const ScriptedEngine::Submitted submitted = engine_.Await(id);
    RequestTrace trace;
    trace.ended_together = together;
    submitted.sink->OnDone(absl::OkStatus(), Finished(rows), trace);
  }

  int waiting() { return replies_.OfNextCall()->unfinished() - 1; }

  Gate gate_;
};

// The test's client is a process of this machine, so it may be a gateway.
TEST_F(UnaryReplyTest, CallersOfAGatewayTakeTurns) {
  gate_.Open();
  const std::pair<std::string, std::string> kOwners[] = {
      {"", "ipv4:127.0.0.1"},
      {"192.0.2.7", "ipv4:127.0.0.1 192.0.2.7"},
      {"two words", "ipv4:127.0.0.1"},
      {std::string(65, 'x'), "ipv4:127.0.0.1"},
  };
  for (size_t i = 0; i < std::size(kOwners); ++i) {
    const std::string id = "r" + std::to_string(i);
    std::future<grpc::Status> call = Call(Generating(id, 4), kOwners[i].first);
    const ScriptedEngine::Submitted submitted = engine_.Await(id);
    EXPECT_EQ(submitted.request.turn_owner(), kOwners[i].second);
    submitted.sink->OnDone(absl::OkStatus(), Finished(1), RequestTrace());
    EXPECT_TRUE(call.get().ok());
  }
}

TEST_F(UnaryReplyTest, TheEngineThreadMakesFewShortReplies) {
  std::future<grpc::Status> call = Call(Generating("few", 4));
  End("few", 4);
  EXPECT_EQ(waiting(), 0);
  gate_.Open();
  EXPECT_TRUE(call.get().ok());
}

TEST_F(UnaryReplyTest, TheEngineThreadMakesNoReplyOfManyTogether) {
  std::future<grpc::Status> call = Call(Generating("many", 4));
  End("many", 5);
  EXPECT_EQ(waiting(), 1);
  gate_.Open();
  EXPECT_TRUE(call.get().ok());
}

TEST_F(UnaryReplyTest, TheEngineThreadMakesNoLongReply) {
  ModelInferRequest request = Generating("long", 16);
  SetInt(&request, "num_top_logprobs", 10);
  request.clear_inputs();
  request.clear_raw_input_contents();
  constexpr int kRows = 16;
  AddInput(&request, "input_ids", "INT32", {kRows, 1}, std::string(4 * kRows, '\0'));
  std::future<grpc::Status> call = Call(request);
  End("long", 1, kRows);
  EXPECT_EQ(waiting(), 1);
  gate_.Open();
  EXPECT_TRUE(call.get().ok());
}

}  // namespace
}  // namespace sluice
