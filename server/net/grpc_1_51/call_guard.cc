#include "server/net/grpc_1_51/call_guard.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "base/reason.h"
#include "server/common/peer.h"
#include "server/common/status.h"
#include "server/net/grpc_1_51/version.h"

namespace sluice {
namespace {

constexpr absl::Duration kPushback = absl::Seconds(1);
constexpr int64_t kEntryOverhead = 32;  // per entry, as HTTP/2 counts

int64_t MetadataBytes(const grpc::ServerContextBase& context) {
  int64_t bytes = 0;
  for (const auto& [name, value] : context.client_metadata()) {
    bytes += name.size() + value.size() + kEntryOverhead;
  }
  return bytes;
}

}  // namespace

// Keeps a call counted until this object ends.
class CallGuard::Counted final : public grpc::experimental::Interceptor {
 public:
  Counted(CallGuard* guard, Peer peer, std::string address, LiveCalls::Verdict verdict)
      : guard_(guard), peer_(std::move(peer)), address_(std::move(address)), verdict_(verdict) {}
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() override {
    guard_->Leave(peer_);
    guard_->live_->Leave(address_, verdict_);
  }

  bool refused() const { return verdict_ != LiveCalls::Verdict::kServe; }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    methods->Proceed();
  }

 private:
  CallGuard* const guard_;
  const Peer peer_;
  const std::string address_;
  const LiveCalls::Verdict verdict_;
};

class CallGuard::Context final : public grpc::CallbackServerContext {
 public:
  explicit Context(LiveCalls* live) : live_(live) { live_->OnCreated(); }
  ~Context() override { live_->OnReleased(); }
  template <typename... Arguments>
  void Count(Arguments&&... arguments) {
    counted_.emplace(std::forward<Arguments>(arguments)...);
  }
  bool refused() const { return counted_.has_value() && counted_->refused(); }

 private:
  LiveCalls* const live_;
  std::optional<Counted> counted_;
};

class CallGuard::ContextsOfCalls final : public grpc::ContextAllocator {
 public:
  explicit ContextsOfCalls(LiveCalls* live) : live_(live) {}
  using grpc::ContextAllocator::Release;
  grpc::CallbackServerContext* NewCallbackServerContext() override { return new Context(live_); }
  // gRPC also releases contexts of nonexistent methods here, which it made itself.
  void Release(grpc::CallbackServerContext* context) override {
    delete dynamic_cast<Context*>(context);
  }

 private:
  LiveCalls* const live_;
};

std::unique_ptr<grpc::ContextAllocator> CallGuard::Contexts(LiveCalls* live) {
  return std::make_unique<ContextsOfCalls>(live);
}

absl::Status CallGuard::Check(const grpc::CallbackServerContext& context) {
  const auto* const own = dynamic_cast<const Context*>(&context);
  if (own == nullptr || !own->refused()) return absl::OkStatus();
  return WithPushback(
      ReasonError(Reason::kTooBusy,
                  "too many calls are in progress, and too many of them are from this address; "
                  "let calls end before you open others, or raise server.grpc.max_calls"),
      kPushback);
}

grpc::experimental::Interceptor* CallGuard::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  grpc::ServerContextBase& context = *info->server_context();
  Peer peer = context.peer();
  // Reports the connection once, when it first exceeds the limit: its later calls end together with
  // it.
  const bool crossing = Enter(peer) == limits_.max_calls + 1;
  std::string address = AddressOf(peer);
  const LiveCalls::Verdict verdict = live_->Enter(address);
  const bool closes = verdict == LiveCalls::Verdict::kClose;
  if (crossing || closes || MetadataBytes(context) > limits_.max_metadata_bytes) {
    on_excess_(peer, /*whole_address=*/closes);
  }
  if (verdict != LiveCalls::Verdict::kServe) on_refused_(address, closes);
  auto* const own = dynamic_cast<Context*>(&context);
  if (own == nullptr) return new Counted(this, std::move(peer), std::move(address), verdict);
  own->Count(this, std::move(peer), std::move(address), verdict);
  return nullptr;
}

int64_t CallGuard::Enter(const Peer& peer) {
  Shard& shard = ShardOf(peer);
  MutexLock lock(&shard.mu);
  return ++shard.calls[peer];
}

void CallGuard::Leave(const Peer& peer) {
  Shard& shard = ShardOf(peer);
  MutexLock lock(&shard.mu);
  const auto calls = shard.calls.find(peer);
  if (--calls->second == 0) shard.calls.erase(calls);
}

}  // namespace sluice
