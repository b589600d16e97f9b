#include "server/net/grpc_1_51/transfer_watch.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "grpc/grpc.h"
#include "server/net/grpc_1_51/version.h"

namespace sluice {

TransferWatch::TransferWatch(nanoseconds patience, const char* option, Clock* clock)
    : patience_(patience), option_(option), clock_(clock) {
  queue_.next_ = queue_.previous_ = &queue_;
  thread_.emplace(clock_, clock_->Now() + patience_, [this] { return CancelExpired(); });
}

void TransferWatch::Begin(grpc_call* call, const char* what, Wait* wait) {
  wait->call_ = call;
  wait->what_ = what;
  MutexLock lock(&mu_);
  wait->end_ = clock_->Now() + patience_;
  wait->next_ = &queue_;
  wait->previous_ = queue_.previous_;
  queue_.previous_->next_ = wait;
  queue_.previous_ = wait;
}

void TransferWatch::End(Wait* wait) {
  MutexLock lock(&mu_);
  if (wait->next_ != nullptr) Unlink(wait);
}

void TransferWatch::Unlink(Wait* wait) {
  wait->next_->previous_ = wait->previous_;
  wait->previous_->next_ = wait->next_;
  wait->next_ = wait->previous_ = nullptr;
}

MonoTime TransferWatch::CancelExpired() {
  MutexLock lock(&mu_);
  for (;;) {
    const MonoTime now = clock_->Now();
    if (queue_.next_ == &queue_) return now + patience_;
    if (queue_.next_->end_ > now) return queue_.next_->end_;
    CancelFirst();
  }
}

void TransferWatch::CancelFirst() {
  Wait* const wait = queue_.next_;
  grpc_call* const call = wait->call_;
  const std::string message =
      absl::StrCat(wait->what_, " within ", absl::FormatDuration(absl::FromChrono(patience_)), " (",
                   option_, ")");
  Unlink(wait);
  grpc_call_ref(call);  // its owner may end it as soon as the lock is released
  mu_.Unlock();
  grpc_call_cancel_with_status(call, GRPC_STATUS_RESOURCE_EXHAUSTED, message.c_str(), nullptr);
  grpc_call_unref(call);
  cancelled_.fetch_add(1, std::memory_order_relaxed);
  mu_.Lock();
}

}  // namespace sluice
