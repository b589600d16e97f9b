// A call of gRPC's core that waits until it is cancelled.
#pragma once

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::testing {

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

}  // namespace sluice::testing
