#include "server/net/grpc_1_51/live_calls.h"

namespace sluice {

LiveCalls::Verdict LiveCalls::Enter(const std::string& address) {
  MutexLock lock(&mu_);
  ++live_;
  if (served_.Take(address, 1)) return Verdict::kServe;
  refused_.fetch_add(1, std::memory_order_relaxed);
  return live_ <= max_ ? Verdict::kRefuse : Verdict::kClose;
}

void LiveCalls::Leave(const std::string& address, Verdict verdict) {
  MutexLock lock(&mu_);
  --live_;
  if (verdict == Verdict::kServe) served_.Return(address, 1);
}

}  // namespace sluice
