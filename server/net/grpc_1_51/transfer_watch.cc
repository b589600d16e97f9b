#include "server/net/grpc_1_51/transfer_watch.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "grpc/grpc.h"
#include "server/net/grpc_1_51/version.h"

namespace sluice {
namespace {

// Up to this number of addresses, the watch keeps those without waits.
constexpr size_t kKeptAddresses = 256;

constexpr char kShuttingDown[] = "the server is shutting down";

}  // namespace

TransferWatch::TransferWatch(nanoseconds patience, const char* option, Clock* clock, Limit limit)
    : patience_(patience), option_(option), clock_(clock), limit_(std::move(limit)) {
  queue_.next_ = queue_.previous_ = &queue_;
  thread_.emplace(clock_, clock_->Now() + patience_, [this] { return CancelExpired(); });
}

void TransferWatch::BeginIncoming(grpc_call* call, const char* what, const Peer& peer, Wait* wait) {
  grpc_call* taken = nullptr;
  std::string address, caller;
  bool ended = false;
  {
    MutexLock lock(&mu_);
    Link(call, what, wait);
    Count(peer, wait);
    ended = ended_;
    if (ended) {
      taken = Take(wait);
    } else if (incoming_ > limit_.max_incoming) {
      Wait* const oldest = OldestOfLargestPeer();
      address = oldest->group_->address->name;
      caller = oldest->group_->caller;
      taken = Take(oldest);
    }
  }
  if (taken == nullptr) return;
  if (ended) return Cancel({taken}, GRPC_STATUS_UNAVAILABLE, kShuttingDown);
  displaced_.fetch_add(1, std::memory_order_relaxed);
  Cancel({taken}, GRPC_STATUS_RESOURCE_EXHAUSTED, limit_.full);
  if (limit_.on_full) limit_.on_full(address, caller);
}

void TransferWatch::BeginOutgoing(grpc_call* call, const char* what, int64_t bytes, Wait* wait) {
  MutexLock lock(&mu_);
  Link(call, what, wait);
  wait->bytes_ = bytes;
}

void TransferWatch::End(Wait* wait) {
  MutexLock lock(&mu_);
  if (wait->next_ != nullptr) Unlink(wait);
}

void TransferWatch::Link(grpc_call* call, const char* what, Wait* wait) {
  wait->call_ = call;
  wait->what_ = what;
  wait->bytes_ = 0;
  wait->end_ = clock_->Now() + patience_;
  wait->next_ = &queue_;
  wait->previous_ = queue_.previous_;
  queue_.previous_->next_ = wait;
  queue_.previous_ = wait;
}

void TransferWatch::Unlink(Wait* wait) {
  if (wait->group_ != nullptr) Uncount(wait);
  wait->next_->previous_ = wait->previous_;
  wait->previous_->next_ = wait->next_;
  wait->next_ = wait->previous_ = nullptr;
}

void TransferWatch::Count(const Peer& peer, Wait* wait) {
  const absl::string_view name(peer.address.data(), peer.address.size());
  std::unique_ptr<Address>& address = addresses_[name];
  if (address == nullptr) address = std::make_unique<Address>(Address{.name = std::string(name)});
  std::unique_ptr<Group>& group =
      address->callers[absl::string_view(peer.caller.data(), peer.caller.size())];
  if (group == nullptr) {
    group = std::make_unique<Group>(
        Group{.address = address.get(), .caller = std::string(peer.caller)});
  }
  wait->group_ = group.get();
  wait->older_ = group->newest;
  wait->newer_ = nullptr;
  (group->newest == nullptr ? group->oldest : group->newest->newer_) = wait;
  group->newest = wait;
  ++group->waits;
  AddTo(address.get(), 1);
  ++incoming_;
}

void TransferWatch::Uncount(Wait* wait) {
  Group* const group = std::exchange(wait->group_, nullptr);
  (wait->older_ == nullptr ? group->oldest : wait->older_->newer_) = wait->newer_;
  (wait->newer_ == nullptr ? group->newest : wait->newer_->older_) = wait->older_;
  --group->waits;
  --incoming_;
  Address* const address = group->address;
  AddTo(address, -1);
  if (address->waits > 0 || addresses_.size() <= kKeptAddresses) return;
  by_waits_.erase({0, address});
  addresses_.erase(address->name);
}

void TransferWatch::AddTo(Address* address, int64_t waits) {
  auto entry = by_waits_.extract({address->waits, address});
  address->waits += waits;
  if (entry.empty()) {
    by_waits_.emplace(address->waits, address);
  } else {
    entry.value().first = address->waits;
    by_waits_.insert(std::move(entry));
  }
}

TransferWatch::Wait* TransferWatch::OldestOfLargestPeer() {
  const auto largest =
      std::ranges::max_element(by_waits_.rbegin()->second->callers, {},
                               [](const auto& caller) { return caller.second->waits; });
  return largest->second->oldest;
}

MonoTime TransferWatch::CancelExpired() {
  for (;;) {
    grpc_call* taken = nullptr;
    std::string message;
    {
      MutexLock lock(&mu_);
      const MonoTime now = clock_->Now();
      Wait* const first = queue_.next_;
      if (first == &queue_) return now + patience_;
      if (first->end_ > now) return first->end_;
      message = absl::StrCat(first->what_, " within ",
                             absl::FormatDuration(absl::FromChrono(patience_)), " (", option_, ")");
      taken = Take(first);
    }
    cancelled_.fetch_add(1, std::memory_order_relaxed);
    Cancel({taken}, GRPC_STATUS_RESOURCE_EXHAUSTED, message);
  }
}

int64_t TransferWatch::CutLargest(int64_t bytes) {
  std::vector<grpc_call*> taken;
  int64_t sum = 0;
  {
    MutexLock lock(&mu_);
    std::vector<Wait*> answers;
    for (Wait* wait = queue_.next_; wait != &queue_; wait = wait->next_) {
      if (wait->bytes_ > 0) answers.push_back(wait);
    }
    std::ranges::stable_sort(answers, std::greater<>(), &Wait::bytes_);
    for (Wait* const wait : answers) {
      if (sum >= bytes) break;
      sum += wait->bytes_;
      taken.push_back(Take(wait));
    }
  }
  cut_.fetch_add(std::ssize(taken), std::memory_order_relaxed);
  Cancel(taken, GRPC_STATUS_RESOURCE_EXHAUSTED,
         "the caller did not read the answer, and the daemon is short of memory "
         "(server.memory.limit_bytes)");
  return sum;
}

void TransferWatch::EndIncoming() {
  std::vector<grpc_call*> taken;
  {
    MutexLock lock(&mu_);
    ended_ = true;
    for (Wait* wait = queue_.next_; wait != &queue_;) {
      Wait* const next = wait->next_;
      if (wait->group_ != nullptr) taken.push_back(Take(wait));
      wait = next;
    }
  }
  Cancel(taken, GRPC_STATUS_UNAVAILABLE, kShuttingDown);
}

grpc_call* TransferWatch::Take(Wait* wait) {
  grpc_call* const call = wait->call_;
  Unlink(wait);
  grpc_call_ref(call);
  return call;
}

void TransferWatch::Cancel(const std::vector<grpc_call*>& taken, int code,
                           const std::string& message) {
  for (grpc_call* const call : taken) {
    grpc_call_cancel_with_status(call, static_cast<grpc_status_code>(code), message.c_str(),
                                 nullptr);
    grpc_call_unref(call);
  }
}

}  // namespace sluice
