// The file that names who may call:
//
//   alice: token:5f0c1e...       # a bearer token, as the caller sends it
//   alice: sha256:9f86d081...    # another one, as the hex of its SHA-256
//   # a name in the caller's certificate, its subject alternative ones first
//   batch: certificate:batch.example.org tokens_per_second=1e5
//   anonymous: none requests_per_second=5  # who shows none of these
//
// A name may have several credentials, so that they can be exchanged one after the other, and
// limits of its own on any of its lines.
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

inline constexpr size_t kMaxCallers = 1000;  // kAnonymous among them
inline constexpr size_t kMinTokenBytes = 16;
inline constexpr size_t kMaxTokenBytes = 512;
inline constexpr absl::string_view kAnonymous = "anonymous";

// SHA-256 of a token. What is looked up and compared is this and not the token, and it is compared
// in constant time.
using TokenDigest = std::array<uint8_t, 32>;
TokenDigest DigestOf(absl::string_view token);
struct SameDigest {
  bool operator()(const TokenDigest& a, const TokenDigest& b) const {
    return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
  }
};

// What a caller's lines say of its RateOptions; the rest is the default.
struct RateOverrides {
  std::optional<double> requests_per_second;
  std::optional<double> requests_burst;
  std::optional<double> tokens_per_second;
  std::optional<double> tokens_burst;
};

struct CallersFile {
  struct Entry {
    std::string name;  // [A-Za-z0-9_.-]{1,64}
    RateOverrides rates;
  };
  std::vector<Entry> callers;  // distinct names; the first is kAnonymous
  // Credential -> index of its caller.
  absl::flat_hash_map<TokenDigest, size_t, absl::Hash<TokenDigest>, SameDigest> tokens;
  absl::flat_hash_map<std::string, size_t> certificates;

  CallersFile() : callers{{std::string(kAnonymous), {}}} {}
};

// Returns InvalidArgument "FILE:LINE: PROBLEM", which never shows a credential. The numbers of
// limits have the ranges of RateOptions.
absl::StatusOr<CallersFile> ParseCallers(absl::string_view text, const std::string& file);

}  // namespace sluice
