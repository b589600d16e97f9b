// Who calls, and how much each caller may ask for.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/token_bucket.h"
#include "grpcpp/server_context.h"
#include "server/common/options.h"
#include "server/security/callers_file.h"

namespace sluice {

// What one caller has asked for and may still ask for. Outlives changes of its limits.
struct CallerAccount {
  TokenBucket requests;
  TokenBucket tokens;
  std::atomic<int64_t> admitted_requests{0};
  std::atomic<int64_t> admitted_tokens{0};
  std::atomic<int64_t> refused{0};
};

// A name with its limits. Thread-safe.
class Caller {
 public:
  Caller(std::string name, const RateOptions& rates, std::shared_ptr<CallerAccount> account);

  const std::string& name() const { return name_; }
  const std::shared_ptr<CallerAccount>& account() const { return account_; }

  // For one request at `now`: ResourceExhausted with the reason rate_limited and a push-back, after
  // which one will be admitted if nobody else takes its place.
  absl::Status TakeRequest(MonoTime now) const;
  // Likewise, for its tokens. One that has more than tokens_burst is admitted when nothing is owed.
  absl::Status TakeTokens(int64_t tokens, MonoTime now) const;
  // The engine took no request of them after all.
  void ReturnTokens(int64_t tokens) const;

 private:
  absl::Status Refuse(const char* unit, const BucketRate& rate, nanoseconds wait) const;

  const std::string name_;
  const BucketRate requests_;
  const BucketRate tokens_;
  const std::shared_ptr<CallerAccount> account_;
};

struct CallerStats {
  std::string caller;
  int64_t requests = 0;  // that passed the limits
  int64_t tokens = 0;
  int64_t refused = 0;  // by the limits
};

// Thread-safe. Reads the file as often as it is told to look, and keeps what was last good.
class Callers {
 public:
  // Called on the thread of a look whose outcome is another than before, or that found another good
  // file.
  using OnChange = std::function<void(const absl::Status& outcome)>;

  // Errors as of ReadSecretFile and ParseCallers. Without a file everybody is anonymous.
  static absl::StatusOr<std::unique_ptr<Callers>> Open(const AuthOptions& auth,
                                                       const RateOptions& rates,
                                                       OnChange on_change);

  // Looks again, and returns what is wrong with the file as it is.
  absl::Status Look();

  // For those whose lines give none; from now on.
  void SetRates(const RateOptions& rates);

  // By the bearer token, else by a name in the certificate. Unauthenticated with the reason
  // token_unknown for a token that is nobody's, and with credential_missing for a caller without
  // any, or with a certificate that is not listed, where anonymous callers are not served.
  absl::StatusOr<std::shared_ptr<const Caller>> Identify(
      const grpc::ServerContextBase& context) const;

  // Calls that Identify refused so far.
  int64_t unknown_tokens() const { return unknown_tokens_.load(std::memory_order_relaxed); }
  int64_t missing_credentials() const {
    return missing_credentials_.load(std::memory_order_relaxed);
  }

  // In the order of the file, kAnonymous first.
  std::vector<CallerStats> Stats() const;

 private:
  struct Table {
    CallersFile file;
    std::vector<std::shared_ptr<const Caller>> callers;  // as file.callers
  };

  Callers(const AuthOptions& auth, const RateOptions& rates, OnChange on_change)
      : auth_(auth), on_change_(std::move(on_change)), rates_(rates) {}

  std::shared_ptr<const Table> table() const;
  void Publish(CallersFile file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(look_mu_);

  const AuthOptions auth_;
  const OnChange on_change_;

  mutable std::atomic<int64_t> unknown_tokens_ = 0;
  mutable std::atomic<int64_t> missing_credentials_ = 0;

  Mutex look_mu_;  // held for a whole look; before mu_
  RateOptions rates_ ABSL_GUARDED_BY(look_mu_);
  bool read_ ABSL_GUARDED_BY(look_mu_) = false;  // once, at least
  std::string text_ ABSL_GUARDED_BY(look_mu_);   // that table_ was made of
  absl::Status outcome_ ABSL_GUARDED_BY(look_mu_);

  mutable Mutex mu_;  // held for a few instructions
  std::shared_ptr<const Table> table_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
