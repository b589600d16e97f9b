#include "server/net/grpc_1_51/live_calls.h"

namespace sluice {
namespace {

// An address with at most this part of all places is not the cause of a flood.
constexpr int64_t kFewShare = 32;

}  // namespace

LiveCalls::Verdict LiveCalls::Enter(const std::string& address) {
  MutexLock lock(&mu_);
  ++live_;
  const int64_t own = ++by_address_[address];
  const bool overrun = created_.load(std::memory_order_relaxed) > max_;
  const bool floods = overrun && own > max_ / kFewShare && own > live_ / 2;
  if (!floods && served_.Take(address, 1)) return Verdict::kServe;
  refused_.fetch_add(1, std::memory_order_relaxed);
  return live_ > max_ || overrun ? Verdict::kClose : Verdict::kRefuse;
}

void LiveCalls::Leave(const std::string& address, Verdict verdict) {
  MutexLock lock(&mu_);
  --live_;
  const auto own = by_address_.find(address);
  if (--own->second == 0) by_address_.erase(own);
  if (verdict == Verdict::kServe) served_.Return(address, 1);
}

}  // namespace sluice
