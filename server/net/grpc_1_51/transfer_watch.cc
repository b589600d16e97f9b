#include "server/net/grpc_1_51/transfer_watch.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "grpc/grpc.h"
#include "server/net/grpc_1_51/version.h"

namespace sluice {
namespace {

constexpr char kShuttingDown[] = "the server is shutting down";

}  // namespace

TransferWatch::TransferWatch(nanoseconds patience, const char* option, Clock* clock,
                             int64_t max_incoming)
    : patience_(patience), option_(option), clock_(clock), max_incoming_(max_incoming) {
  queue_.next_ = queue_.previous_ = &queue_;
  thread_.emplace(clock_, clock_->Now() + patience_, [this] { return CancelExpired(); });
}

void TransferWatch::Begin(grpc_call* call, const char* what, Wait* wait, Kind kind, int64_t bytes) {
  wait->call_ = call;
  wait->what_ = what;
  wait->kind_ = kind;
  wait->bytes_ = bytes;
  MutexLock lock(&mu_);
  wait->end_ = clock_->Now() + patience_;
  wait->next_ = &queue_;
  wait->previous_ = queue_.previous_;
  queue_.previous_->next_ = wait;
  queue_.previous_ = wait;
  if (kind == Kind::kOutgoing) return;
  if (++incoming_ > max_incoming_) {
    Cancel(wait, GRPC_STATUS_RESOURCE_EXHAUSTED,
           "too many calls are waiting for their messages (server.grpc.max_calls)");
  } else if (ended_) {
    Cancel(wait, GRPC_STATUS_UNAVAILABLE, kShuttingDown);
  }
}

void TransferWatch::End(Wait* wait) {
  MutexLock lock(&mu_);
  if (wait->next_ != nullptr) Unlink(wait);
}

void TransferWatch::Unlink(Wait* wait) {
  if (wait->kind_ == Kind::kIncoming) --incoming_;
  wait->next_->previous_ = wait->previous_;
  wait->previous_->next_ = wait->next_;
  wait->next_ = wait->previous_ = nullptr;
}

MonoTime TransferWatch::CancelExpired() {
  MutexLock lock(&mu_);
  for (;;) {
    const MonoTime now = clock_->Now();
    Wait* const first = queue_.next_;
    if (first == &queue_) return now + patience_;
    if (first->end_ > now) return first->end_;
    const std::string message =
        absl::StrCat(first->what_, " within ", absl::FormatDuration(absl::FromChrono(patience_)),
                     " (", option_, ")");
    cancelled_.fetch_add(1, std::memory_order_relaxed);
    Cancel(first, GRPC_STATUS_RESOURCE_EXHAUSTED, message);
  }
}

void TransferWatch::CutLargest(int64_t bytes) {
  MutexLock lock(&mu_);
  while (bytes > 0) {
    Wait* largest = nullptr;
    for (Wait* wait = queue_.next_; wait != &queue_; wait = wait->next_) {
      if (wait->bytes_ > (largest == nullptr ? 0 : largest->bytes_)) largest = wait;
    }
    if (largest == nullptr) return;
    bytes -= largest->bytes_;
    cut_.fetch_add(1, std::memory_order_relaxed);
    Cancel(largest, GRPC_STATUS_RESOURCE_EXHAUSTED,
           "the caller did not read the answer, and the daemon is short of memory "
           "(server.memory.limit_bytes)");
  }
}

void TransferWatch::EndIncoming() {
  MutexLock lock(&mu_);
  ended_ = true;
  for (Wait* wait = queue_.next_; wait != &queue_;) {
    if (wait->kind_ == Kind::kOutgoing) {
      wait = wait->next_;
      continue;
    }
    Cancel(wait, GRPC_STATUS_UNAVAILABLE, kShuttingDown);
    wait = queue_.next_;  // the queue may have changed while the lock was free
  }
}

void TransferWatch::Cancel(Wait* wait, int code, const std::string& message) {
  grpc_call* const call = wait->call_;
  Unlink(wait);
  grpc_call_ref(call);  // its owner may end the call once the lock is released
  mu_.Unlock();
  grpc_call_cancel_with_status(call, static_cast<grpc_status_code>(code), message.c_str(), nullptr);
  grpc_call_unref(call);
  mu_.Lock();
}

}  // namespace sluice
