#include "server/security/callers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/auth_context.h"
#include "server/common/status.h"
#include "server/security/secret_file.h"

namespace sluice {
namespace {

// Returns the limit as a rate. If the burst is not set, it is the amount of one second, and at
// least 1.
BucketRate RateOf(double per_second, double burst) {
  return {per_second, burst > 0 ? burst : std::max(per_second, 1.0)};
}

// Returns the text after "Bearer " in the call's authorization, an empty text for any other scheme,
// or nullopt if there is no such header.
std::optional<absl::string_view> BearerToken(const grpc::ServerContextBase& context) {
  constexpr absl::string_view kScheme = "bearer ";
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find("authorization");
  if (found == metadata.end()) return std::nullopt;
  const absl::string_view value(found->second.data(), found->second.size());
  if (!absl::StartsWithIgnoreCase(value, kScheme)) return absl::string_view();
  return absl::StripAsciiWhitespace(value.substr(kScheme.size()));
}

// Returns the index of the caller that owns one of the certificate's names. The common name counts
// only if the certificate has no alternative names (RFC 6125, section 6.4.4): authorities check the
// alternative names, and often not the common name.
std::optional<size_t> CertificateOwner(const grpc::ServerContextBase& context,
                                       const CallersFile& file) {
  if (file.certificates.empty()) return std::nullopt;
  const auto identity = context.auth_context();
  if (identity == nullptr || !identity->IsPeerAuthenticated()) return std::nullopt;
  for (const char* property : {GRPC_X509_SAN_PROPERTY_NAME, GRPC_X509_CN_PROPERTY_NAME}) {
    const std::vector<grpc::string_ref> names = identity->FindPropertyValues(property);
    for (const grpc::string_ref& name : names) {
      const auto found = file.certificates.find(absl::string_view(name.data(), name.size()));
      if (found != file.certificates.end()) return found->second;
    }
    if (!names.empty()) break;
  }
  return std::nullopt;
}

}  // namespace

BucketRate Caller::Requests() const {
  const RateOptions defaults = defaults_->Get();
  return RateOf(own_.requests_per_second.value_or(defaults.requests_per_second),
                own_.requests_burst.value_or(defaults.requests_burst));
}

BucketRate Caller::Tokens() const {
  const RateOptions defaults = defaults_->Get();
  return RateOf(own_.tokens_per_second.value_or(defaults.tokens_per_second),
                own_.tokens_burst.value_or(defaults.tokens_burst));
}

absl::Status Caller::Refuse(const char* unit, const BucketRate& rate, nanoseconds wait) const {
  account_->refused.fetch_add(1, std::memory_order_relaxed);
  const absl::Status status =
      ReasonError(Reason::kRateLimited,
                  absl::StrCat("caller ", name_, ": more than ", rate.per_second, " ", unit,
                               " per second (bursts of ", rate.burst, "); retry later"));
  return WithPushback(status, absl::FromChrono(wait));
}

absl::Status Caller::TakeRequest(MonoTime now) const {
  const BucketRate rate = Requests();
  const nanoseconds wait = account_->requests.Take(1, rate, now);
  if (wait != nanoseconds(0)) return Refuse("requests", rate, wait);
  account_->admitted_requests.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status Caller::TakeTokens(int64_t tokens, MonoTime now) const {
  const BucketRate rate = Tokens();
  const nanoseconds wait = account_->tokens.Take(static_cast<double>(tokens), rate, now);
  return wait == nanoseconds(0) ? absl::OkStatus() : Refuse("tokens", rate, wait);
}

void Caller::ReturnTokens(int64_t tokens) const {
  account_->tokens.Return(static_cast<double>(tokens), Tokens());
}

void Caller::CountTokens(int64_t tokens) const {
  account_->admitted_tokens.fetch_add(tokens, std::memory_order_relaxed);
}

absl::StatusOr<std::unique_ptr<Callers>> Callers::Open(const AuthOptions& auth,
                                                       const RateOptions& rates, OnChange on_change,
                                                       OnRefused on_refused) {
  std::unique_ptr<Callers> callers(
      new Callers(auth, rates, std::move(on_change), std::move(on_refused)));
  {
    MutexLock look(&callers->look_mu_);
    callers->Publish(CallersFile());
  }
  SLUICE_RETURN_IF_ERROR(callers->Look());
  return callers;
}

absl::Status Callers::Look() {
  if (auth_.callers_file.empty()) return absl::OkStatus();
  MutexLock look(&look_mu_);
  absl::StatusOr<std::string> text = ReadSecretFile(auth_.callers_file);
  absl::Status outcome = text.status();
  const bool fresh = text.ok() && (!read_ || *text != text_);
  if (fresh) {
    absl::StatusOr<CallersFile> file = ParseCallers(*text, auth_.callers_file);
    outcome = file.status();
    if (file.ok()) {
      Publish(*std::move(file));
      text_ = *std::move(text);
      read_ = true;
    }
  }
  const bool told = outcome == outcome_ && !(fresh && outcome.ok());
  outcome_ = outcome;
  if (!told && read_) on_change_(outcome);
  return outcome;
}

absl::Status Callers::Check() const {
  if (auth_.callers_file.empty()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(auth_.callers_file));
  return ParseCallers(text, auth_.callers_file).status();
}

void Callers::Publish(CallersFile file) {
  absl::flat_hash_map<std::string, std::shared_ptr<CallerAccount>> accounts;
  if (const std::shared_ptr<const Table> before = table()) {
    for (const auto& caller : before->callers) accounts[caller->name()] = caller->account();
  }
  auto next = std::make_shared<Table>();
  for (const CallersFile::Entry& entry : file.callers) {
    std::shared_ptr<CallerAccount>& account = accounts[entry.name];
    if (account == nullptr) account = std::make_shared<CallerAccount>();
    next->callers.push_back(
        std::make_shared<const Caller>(entry.name, defaults_, entry.rates, account));
  }
  next->file = std::move(file);
  MutexLock lock(&mu_);
  table_ = std::move(next);
}

std::shared_ptr<const Callers::Table> Callers::table() const {
  MutexLock lock(&mu_);
  return table_;
}

absl::StatusOr<std::shared_ptr<const Caller>> Callers::Identify(
    const grpc::ServerContextBase& context) const {
  absl::StatusOr<std::shared_ptr<const Caller>> caller = Find(context);
  if (caller.ok()) return caller;
  const bool unknown = ReasonOf(caller.status()) == Reason::kTokenUnknown;
  (unknown ? unknown_tokens_ : missing_credentials_).fetch_add(1, std::memory_order_relaxed);
  if (on_refused_ != nullptr) on_refused_(context, caller.status());
  return caller;
}

absl::StatusOr<std::shared_ptr<const Caller>> Callers::Find(
    const grpc::ServerContextBase& context) const {
  const std::shared_ptr<const Table> known = table();
  if (auth_.callers_file.empty()) return known->callers.front();
  if (const std::optional<absl::string_view> token = BearerToken(context)) {
    const auto found = token->size() < kMinTokenBytes ? known->file.tokens.end()
                                                      : known->file.tokens.find(DigestOf(*token));
    if (found != known->file.tokens.end()) return known->callers[found->second];
    return ReasonError(Reason::kTokenUnknown,
                       "the bearer token is not in server.auth.callers_file");
  }
  if (const std::optional<size_t> owner = CertificateOwner(context, known->file)) {
    return known->callers[*owner];
  }
  if (auth_.anonymous) return known->callers.front();
  return ReasonError(Reason::kCredentialMissing,
                     "no bearer token (metadata authorization), and no certificate of "
                     "a known caller; send one of them");
}

std::vector<CallerStats> Callers::Stats() const {
  std::vector<CallerStats> all;
  const std::shared_ptr<const Table> known = table();  // a reload may replace the table
  for (const std::shared_ptr<const Caller>& caller : known->callers) {
    const CallerAccount& account = *caller->account();
    all.push_back({.caller = caller->name(),
                   .requests = account.admitted_requests.load(std::memory_order_relaxed),
                   .tokens = account.admitted_tokens.load(std::memory_order_relaxed),
                   .refused = account.refused.load(std::memory_order_relaxed)});
  }
  return all;
}

}  // namespace sluice
