#include "server/net/grpc_1_51/transfer_watch.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "grpc/grpc.h"

namespace sluice {

TransferWatch::TransferWatch(nanoseconds patience, const char* option, Clock* clock)
    : patience_(patience), option_(option), clock_(clock) {
  queue_.next_ = queue_.previous_ = &queue_;
  thread_ = std::thread([this] { Run(); });
}

TransferWatch::~TransferWatch() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.Signal();
  }
  thread_.join();
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

void TransferWatch::Run() {
  MutexLock lock(&mu_);
  while (!stopping_) {
    const MonoTime now = clock_->Now();
    if (queue_.next_ != &queue_ && queue_.next_->end_ <= now) {
      CancelFirst();
      continue;
    }
    // Nobody wakes it for a first one: none that comes meanwhile ends before this time.
    const MonoTime next = queue_.next_ == &queue_ ? now + patience_ : queue_.next_->end_;
    clock_->WaitUntil(&changed_, &mu_, next);
  }
}

void TransferWatch::CancelFirst() {
  Wait* const wait = queue_.next_;
  grpc_call* const call = wait->call_;
  const std::string message =
      absl::StrCat(wait->what_, " within ", absl::FormatDuration(absl::FromChrono(patience_)), " (",
                   option_, ")");
  Unlink(wait);
  grpc_call_ref(call);  // its owner may end it as soon as the lock is gone
  mu_.Unlock();
  grpc_call_cancel_with_status(call, GRPC_STATUS_RESOURCE_EXHAUSTED, message.c_str(), nullptr);
  grpc_call_unref(call);
  cancelled_.fetch_add(1, std::memory_order_relaxed);
  mu_.Lock();
}

}  // namespace sluice
