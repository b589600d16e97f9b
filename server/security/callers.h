// The callers of the daemon, and their limits.
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
#include "server/common/refusal_log.h"
#include "server/security/callers_file.h"

namespace sluice {

// The usage of one caller. Survives changes of the caller's limits.
struct CallerAccount {
  TokenBucket requests;
  TokenBucket tokens;
  std::atomic<int64_t> admitted_requests{0};
  std::atomic<int64_t> admitted_tokens{0};
  std::atomic<int64_t> refused{0};
  LineRate refusal_lines;  // of the log
};

// The limits of callers without limits in the callers file. Thread-safe; setting them allocates no
// memory.
class DefaultRates {
 public:
  explicit DefaultRates(const RateOptions& rates) : rates_(rates) {}
  void Set(const RateOptions& rates) {
    MutexLock lock(&mu_);
    rates_ = rates;
  }
  RateOptions Get() const {
    MutexLock lock(&mu_);
    return rates_;
  }

 private:
  mutable Mutex mu_;  // held for a few instructions
  RateOptions rates_ ABSL_GUARDED_BY(mu_);
};

// A caller: a name with its limits. Thread-safe.
class Caller {
 public:
  // `own` are the caller's own limits. The current defaults apply to all other limits.
  Caller(std::string name, std::shared_ptr<const DefaultRates> defaults, const RateOverrides& own,
         std::shared_ptr<CallerAccount> account)
      : name_(std::move(name)),
        defaults_(std::move(defaults)),
        own_(own),
        account_(std::move(account)) {}

  const std::string& name() const { return name_; }
  // The most urgent level allowed for the caller.
  int max_priority() const { return own_.max_priority.value_or(1); }
  // Whether the caller states the names of its own callers, which then take turns.
  bool is_gateway() const { return own_.gateway; }
  const std::shared_ptr<CallerAccount>& account() const { return account_; }

  // Takes one request from the limit at `now`. Returns ResourceExhausted with the reason
  // rate_limited and a push-back. A request after the push-back is admitted if no other comes
  // first.
  absl::Status TakeRequest(MonoTime now) const;
  // Takes the tokens of a request in the same way. A request with more than tokens_burst tokens is
  // admitted if the caller owes no tokens.
  absl::Status TakeTokens(int64_t tokens, MonoTime now) const;
  // Returns the tokens of a request that the engine did not accept. Uses the present limit, even if
  // it has changed since they were taken.
  void ReturnTokens(int64_t tokens) const;
  // Counts the tokens of a request that the engine accepted.
  void CountTokens(int64_t tokens) const;

 private:
  BucketRate Requests() const;
  BucketRate Tokens() const;
  absl::Status Refuse(const char* unit, const BucketRate& rate, nanoseconds wait) const;

  const std::string name_;
  const std::shared_ptr<const DefaultRates> defaults_;
  const RateOverrides own_;
  const std::shared_ptr<CallerAccount> account_;
};

struct CallerStats {
  std::string caller;
  int64_t requests = 0;  // the admitted requests and tokens
  int64_t tokens = 0;
  int64_t refused = 0;  // the requests that exceeded a limit
};

// Identifies callers with the callers file. Reads the file again at each Look, and keeps its last
// valid contents. Thread-safe.
class Callers {
 public:
  // Called with the outcome of a Look, on the thread of the Look, if the outcome changed or the
  // file has new valid contents.
  using OnChange = std::function<void(const absl::Status& outcome)>;

  // Called for each call that Identify refuses, on the thread of the call.
  using OnRefused =
      std::function<void(const grpc::ServerContextBase& context, const absl::Status& error)>;

  // Reads the file. Without a file, all callers are anonymous. Returns the errors of ReadSecretFile
  // and ParseCallers.
  static absl::StatusOr<std::unique_ptr<Callers>> Open(const AuthOptions& auth,
                                                       const RateOptions& rates, OnChange on_change,
                                                       OnRefused on_refused = nullptr);

  // Reads the file again and returns any error in its contents.
  absl::Status Look();

  // Returns any error in the present contents of the file. Changes nothing.
  absl::Status Check() const;

  // Sets the default limits for callers whose lines set none. Cannot fail for lack of memory.
  void SetRates(const RateOptions& rates) { defaults_->Set(rates); }
  RateOptions rates() const { return defaults_->Get(); }

  // Identifies the caller by its bearer token, or else by a name in its certificate. Returns
  // Unauthenticated with the reason token_unknown for a token of no caller. If anonymous callers
  // are not served, returns Unauthenticated with the reason credential_missing for a caller without
  // a credential or with an unlisted certificate.
  absl::StatusOr<std::shared_ptr<const Caller>> Identify(
      const grpc::ServerContextBase& context) const;

  // Returns whether the file identifies a caller by a certificate.
  bool names_certificates() const { return !table()->file.certificates.empty(); }

  // The numbers of calls that Identify has refused, by reason.
  int64_t unknown_tokens() const { return unknown_tokens_.load(std::memory_order_relaxed); }
  int64_t missing_credentials() const {
    return missing_credentials_.load(std::memory_order_relaxed);
  }

  // Returns the counts, in the order of the file; kAnonymous is first.
  std::vector<CallerStats> Stats() const;

 private:
  struct Table {
    CallersFile file;
    std::vector<std::shared_ptr<const Caller>> callers;  // in the order of file.callers
  };

  Callers(const AuthOptions& auth, const RateOptions& rates, OnChange on_change,
          OnRefused on_refused)
      : auth_(auth),
        on_change_(std::move(on_change)),
        on_refused_(std::move(on_refused)),
        defaults_(std::make_shared<DefaultRates>(rates)) {}

  std::shared_ptr<const Table> table() const;
  // Returns the caller, or the error that Identify returns.
  absl::StatusOr<std::shared_ptr<const Caller>> Find(const grpc::ServerContextBase& context) const;
  void Publish(CallersFile file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(look_mu_);

  const AuthOptions auth_;
  const OnChange on_change_;
  const OnRefused on_refused_;
  const std::shared_ptr<DefaultRates> defaults_;

  mutable std::atomic<int64_t> unknown_tokens_ = 0;
  mutable std::atomic<int64_t> missing_credentials_ = 0;

  Mutex look_mu_;                                // held during a whole Look; taken before mu_
  bool read_ ABSL_GUARDED_BY(look_mu_) = false;  // the file has been read at least once
  std::string text_ ABSL_GUARDED_BY(look_mu_);   // the text that table_ was made from
  absl::Status outcome_ ABSL_GUARDED_BY(look_mu_);

  mutable Mutex mu_;  // held for a few instructions
  std::shared_ptr<const Table> table_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
