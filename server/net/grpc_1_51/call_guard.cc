#include "server/net/grpc_1_51/call_guard.h"

#include <memory>
#include <optional>
#include <utility>

#include "server/net/grpc_1_51/version.h"

namespace sluice {
namespace {

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
  Counted(CallGuard* guard, Peer peer) : guard_(guard), peer_(std::move(peer)) {}
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() override { guard_->Leave(peer_); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    methods->Proceed();
  }

 private:
  CallGuard* const guard_;
  const Peer peer_;
};

class CallGuard::Context final : public grpc::CallbackServerContext {
 public:
  void Count(CallGuard* guard, Peer peer) { counted_.emplace(guard, std::move(peer)); }

 private:
  std::optional<Counted> counted_;
};

class CallGuard::ContextsOfCalls final : public grpc::ContextAllocator {
 public:
  using grpc::ContextAllocator::Release;
  grpc::CallbackServerContext* NewCallbackServerContext() override { return new Context; }
  // gRPC also releases contexts of nonexistent methods here, which it made itself.
  void Release(grpc::CallbackServerContext* context) override {
    delete dynamic_cast<Context*>(context);
  }
};

std::unique_ptr<grpc::ContextAllocator> CallGuard::Contexts() {
  return std::make_unique<ContextsOfCalls>();
}

grpc::experimental::Interceptor* CallGuard::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  grpc::ServerContextBase& context = *info->server_context();
  Peer peer = context.peer();
  // Reports the connection once, when it first exceeds the limit: its later calls end together with
  // it.
  const bool crossing = Enter(peer) == limits_.max_calls + 1;
  if (crossing || MetadataBytes(context) > limits_.max_metadata_bytes) on_excess_(peer);
  auto* const own = dynamic_cast<Context*>(&context);
  if (own == nullptr) return new Counted(this, std::move(peer));
  own->Count(this, std::move(peer));
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
