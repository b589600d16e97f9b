#include "server/net/grpc_1_51/call_guard.h"

#include <utility>

#include "grpcpp/server_context.h"
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

class CallGuard::Counted final : public grpc::experimental::Interceptor {
 public:
  Counted(CallGuard* guard, Peer peer) : guard_(guard), peer_(std::move(peer)) {}
  ~Counted() override { guard_->Leave(peer_); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    methods->Proceed();
  }

 private:
  CallGuard* const guard_;
  const Peer peer_;
};

grpc::experimental::Interceptor* CallGuard::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  const grpc::ServerContextBase& context = *info->server_context();
  Peer peer = context.peer();
  // Reports the connection once, when it exceeds the limit: its later calls end together with it.
  const bool crossing = Enter(peer) == limits_.max_calls + 1;
  if (crossing || MetadataBytes(context) > limits_.max_metadata_bytes) on_excess_(peer);
  return new Counted(this, std::move(peer));
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
