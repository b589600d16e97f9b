// The file that lists who may call:
//
//   alice: token:5f0c1e...       # a bearer token, as the caller sends it
//   alice: sha256:9f86d081...    # another token, as the hex form of its SHA-256; tokens of fewer
//                                # than kMinTokenBytes are never accepted
//   # a name in the caller's certificate; its subject alternative names come first
//   batch: certificate:batch.example.org tokens_per_second=1e5
//   anonymous: none requests_per_second=5  # callers without any of these
//
//   batch: certificate:other max_priority=3        # the most urgent level that it may ask for
//   edge: token:0a4f22...  gateway   # its own callers, which it names, take turns
//
// A name may have several credentials, so that they can be replaced one at a time. Each line of a
// name may set limits for that name.
#pragma once

#include <openssl/crypto.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

inline constexpr size_t kMaxCallers = 1000;  // including kAnonymous
inline constexpr size_t kMinTokenBytes = 16;
inline constexpr size_t kMaxTokenBytes = 512;
inline constexpr absl::string_view kAnonymous = "anonymous";

// The SHA-256 of a token. Lookups and comparisons use it instead of the token, and compare it in
// constant time.
using TokenDigest = std::array<uint8_t, 32>;
TokenDigest DigestOf(absl::string_view token);
struct SameDigest {
  bool operator()(const TokenDigest& a, const TokenDigest& b) const {
    return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
  }
};

// The settings of a caller's lines. Unset limits have their defaults.
struct RateOverrides {
  std::optional<double> requests_per_second;
  std::optional<double> requests_burst;
  std::optional<double> tokens_per_second;
  std::optional<double> tokens_burst;
  std::optional<int> max_priority;
  bool gateway = false;  // see Caller::is_gateway
};

struct CallersFile {
  struct Entry {
    std::string name;  // [A-Za-z0-9_.-]{1,64}
    RateOverrides rates;
  };
  std::vector<Entry> callers;  // distinct names; the first is kAnonymous
  // Maps each credential to the index of its caller.
  absl::flat_hash_map<TokenDigest, size_t, absl::Hash<TokenDigest>, SameDigest> tokens;
  absl::flat_hash_map<std::string, size_t> certificates;

  CallersFile() : callers{{std::string(kAnonymous), {}}} {}
};

// Parses the text of `file`. Returns InvalidArgument "FILE:LINE: PROBLEM", which never shows a
// credential. The limits have the ranges of RateOptions.
absl::StatusOr<CallersFile> ParseCallers(absl::string_view text, const std::string& file);

}  // namespace sluice
