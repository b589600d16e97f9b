// Tests the cancellations of the watch, with gRPC calls that wait for a server.
#include "server/net/grpc_1_51/transfer_watch.h"

#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/fake_clock.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// A call to a server that does not exist, which waits until it is cancelled.
class PendingCall {
 public:
  PendingCall() {
    grpc_init();
    grpc_metadata_array_init(&metadata_);
    grpc_channel_credentials* const credentials = grpc_insecure_credentials_create();
    channel_ = grpc_channel_create("127.0.0.1:1", credentials, nullptr);
    grpc_channel_credentials_release(credentials);
    queue_ = grpc_completion_queue_create_for_next(nullptr);
    call_ = grpc_channel_create_call(channel_, nullptr, GRPC_PROPAGATE_DEFAULTS, queue_,
                                     grpc_slice_from_static_string("/s/m"), nullptr,
                                     gpr_inf_future(GPR_CLOCK_REALTIME), nullptr);
    grpc_op begin = {}, end = {};
    begin.op = GRPC_OP_SEND_INITIAL_METADATA;
    begin.flags = GRPC_INITIAL_METADATA_WAIT_FOR_READY;
    end.op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    end.data.recv_status_on_client.trailing_metadata = &metadata_;
    end.data.recv_status_on_client.status = &status_;
    end.data.recv_status_on_client.status_details = &details_;
    const std::array<grpc_op, 2> ops = {begin, end};
    EXPECT_EQ(grpc_call_start_batch(call_, ops.data(), ops.size(), this, nullptr), GRPC_CALL_OK);
  }

  ~PendingCall() {
    if (!ended_) End();
    grpc_slice_unref(details_);
    grpc_metadata_array_destroy(&metadata_);
    grpc_call_unref(call_);
    grpc_completion_queue_shutdown(queue_);
    while (Next().type != GRPC_QUEUE_SHUTDOWN) {
    }
    grpc_completion_queue_destroy(queue_);
    grpc_channel_destroy(channel_);
    grpc_shutdown();
  }

  grpc_call* get() const { return call_; }

  // Waits for the end of the call and returns its code and message.
  std::string AwaitEnd() {
    Next();
    ended_ = true;
    char* const text = grpc_slice_to_c_string(details_);
    std::string end = absl::StrCat(status_, " ", text);
    gpr_free(text);
    return end;
  }

  // Ends the call unless it was already cancelled, and returns its code and message.
  std::string End() {
    grpc_call_cancel_with_status(call_, GRPC_STATUS_ABORTED, "by the test", nullptr);
    return AwaitEnd();
  }

 private:
  grpc_event Next() {
    return grpc_completion_queue_next(queue_, gpr_inf_future(GPR_CLOCK_REALTIME), nullptr);
  }

  grpc_channel* channel_ = nullptr;
  grpc_completion_queue* queue_ = nullptr;
  grpc_call* call_ = nullptr;
  grpc_metadata_array metadata_;
  grpc_status_code status_ = GRPC_STATUS_OK;
  grpc_slice details_ = grpc_empty_slice();
  bool ended_ = false;
};

class TransferWatchTest : public ::testing::Test {
 protected:
  static constexpr char kEndedByTest[] = "10 by the test";

  void Begin(int i, TransferWatch::Kind kind = TransferWatch::Kind::kIncoming, int64_t bytes = 0) {
    watch_.Begin(calls_[i].get(), "nothing came", &waits_[i], kind, bytes);
  }
  // Waits for the thread of the watch to sleep until `end`, and advances the time to it.
  void AdvanceTo(nanoseconds end) {
    clock_.AwaitWaiter(start_ + end);
    clock_.Advance(start_ + end - clock_.Now());
  }
  void EndAll() {
    for (TransferWatch::Wait& wait : waits_) watch_.End(&wait);
  }

  FakeClock clock_;
  const MonoTime start_ = clock_.Now();
  std::array<PendingCall, 4> calls_;
  std::array<TransferWatch::Wait, 4> waits_;
  TransferWatch watch_{seconds(1), "an.option", &clock_, /*max_incoming=*/3};
};

TEST_F(TransferWatchTest, EveryWaitEndsAfterItsOwnPatience) {
  Begin(0);
  Begin(1);
  clock_.Advance(milliseconds(400));
  Begin(2);
  watch_.End(&waits_[1]);
  AdvanceTo(seconds(1));
  EXPECT_EQ(calls_[0].AwaitEnd(), "8 nothing came within 1s (an.option)");
  AdvanceTo(milliseconds(1400));
  EXPECT_EQ(calls_[2].AwaitEnd(), "8 nothing came within 1s (an.option)");
  EXPECT_EQ(watch_.cancelled(), 2);
  EXPECT_EQ(calls_[1].End(), kEndedByTest);
}

TEST_F(TransferWatchTest, AWaitAboveTheLimitIsCancelledAtOnce) {
  for (int i = 0; i < 4; ++i) Begin(i);
  EXPECT_THAT(calls_[3].AwaitEnd(), HasSubstr("server.grpc.max_calls"));
  EndAll();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(calls_[i].End(), kEndedByTest);
}

// Of two answers of the same size, the older one is cut first.
TEST_F(TransferWatchTest, TheLargestAnswersAreCutUntilEnoughIsFree) {
  Begin(0, TransferWatch::Kind::kOutgoing, 5);
  Begin(1, TransferWatch::Kind::kOutgoing, 9);
  Begin(2, TransferWatch::Kind::kOutgoing, 9);
  Begin(3, TransferWatch::Kind::kOutgoing, 7);
  watch_.CutLargest(0);
  EXPECT_EQ(watch_.cut(), 0);
  watch_.CutLargest(9);
  EXPECT_EQ(watch_.cut(), 1);
  EXPECT_THAT(calls_[1].AwaitEnd(), HasSubstr("server.memory.limit_bytes"));
  watch_.CutLargest(10);
  EXPECT_EQ(watch_.cut(), 3);
  EXPECT_THAT(calls_[2].AwaitEnd(), HasSubstr("server.memory.limit_bytes"));
  EXPECT_THAT(calls_[3].AwaitEnd(), HasSubstr("server.memory.limit_bytes"));
  EndAll();
  EXPECT_EQ(calls_[0].End(), kEndedByTest);
}

TEST_F(TransferWatchTest, AnswersAreStillReadAfterIncomingMessagesEnd) {
  Begin(0);
  Begin(1, TransferWatch::Kind::kOutgoing, 1);
  Begin(2);
  watch_.EndIncoming();
  Begin(3);
  for (const int i : {0, 2, 3}) {
    EXPECT_EQ(calls_[i].AwaitEnd(), "14 the server is shutting down") << i;
  }
  EndAll();
  EXPECT_EQ(calls_[1].End(), kEndedByTest);
}

}  // namespace
}  // namespace sluice
