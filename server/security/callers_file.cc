#include "server/security/callers_file.h"

#include <openssl/sha.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "engine/schedule_values.h"
#include "server/common/option_specs.h"

namespace sluice {
namespace {

constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxCertificateNameBytes = 256;

bool IsName(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
         });
}

absl::Status Problem(absl::string_view problem) { return absl::InvalidArgumentError(problem); }

class Parser {
 public:
  absl::Status Line(absl::string_view line) {
    const size_t colon = line.find(':');
    const absl::string_view name = absl::StripAsciiWhitespace(line.substr(0, colon));
    if (colon == absl::string_view::npos || !IsName(name)) {
      return Problem(
          "expected NAME: CREDENTIAL, with a name of at most 64 characters from A-Z a-z 0-9 _ . -");
    }
    std::vector<absl::string_view> words =
        absl::StrSplit(line.substr(colon + 1), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    // A comment begins with a # at the start of a word. Tokens may contain a # elsewhere.
    words.erase(std::find_if(words.begin(), words.end(), [](auto word) { return word[0] == '#'; }),
                words.end());
    if (words.empty()) return Problem("no credential after the name");
    SLUICE_ASSIGN_OR_RETURN(const size_t caller, CallerOf(name));
    absl::Status status = Credential(words[0], caller);
    for (size_t i = 1; i < words.size() && status.ok(); ++i) status = Limit(words[i], caller);
    return status;
  }

  CallersFile Take() { return std::move(file_); }

 private:
  absl::StatusOr<size_t> CallerOf(absl::string_view name) {
    const auto [known, fresh] = names_.try_emplace(std::string(name), file_.callers.size());
    if (!fresh) return known->second;
    if (names_.size() > kMaxCallers) {
      return Problem(absl::StrCat("more than ", kMaxCallers, " names"));
    }
    file_.callers.push_back({std::string(name), {}});
    return known->second;
  }

  absl::Status Credential(absl::string_view word, size_t caller) {
    const bool anonymous = caller == 0;
    if (anonymous != (word == "none")) {
      return Problem(anonymous ? "the credential of anonymous must be none"
                               : "only anonymous may have the credential none");
    }
    if (anonymous) return absl::OkStatus();
    if (absl::ConsumePrefix(&word, "token:")) return Token(word, caller);
    if (absl::ConsumePrefix(&word, "sha256:")) return Hash(word, caller);
    if (absl::ConsumePrefix(&word, "certificate:")) return CertificateName(word, caller);
    return Problem("unknown credential; expected token:TEXT, sha256:HEX, certificate:NAME or none");
  }

  absl::Status Token(absl::string_view token, size_t caller) {
    if (token.size() < kMinTokenBytes || token.size() > kMaxTokenBytes) {
      return Problem(absl::StrCat("a token has ", kMinTokenBytes, " to ", kMaxTokenBytes,
                                  " bytes; this one has ", token.size()));
    }
    if (!std::all_of(token.begin(), token.end(), absl::ascii_isgraph)) {
      return Problem("a token must be printable ASCII");
    }
    return Add(DigestOf(token), caller);
  }

  absl::Status Hash(absl::string_view hex, size_t caller) {
    TokenDigest digest;
    if (hex.size() != 2 * digest.size() ||
        !std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit)) {
      return Problem("sha256: must be followed by 64 hexadecimal digits");
    }
    const std::string bytes = absl::HexStringToBytes(hex);
    std::copy(bytes.begin(), bytes.end(), digest.begin());
    if (digest == DigestOf("")) return Problem("this is the hash of an empty token");
    return Add(digest, caller);
  }

  absl::Status Add(const TokenDigest& digest, size_t caller) {
    if (file_.tokens.emplace(digest, caller).second) return absl::OkStatus();
    return Problem("this token is already in the file");
  }

  absl::Status CertificateName(absl::string_view name, size_t caller) {
    if (name.empty() || name.size() > kMaxCertificateNameBytes) {
      return Problem(
          absl::StrCat("a certificate's name must have 1 to ", kMaxCertificateNameBytes, " bytes"));
    }
    if (file_.certificates.emplace(std::string(name), caller).second) return absl::OkStatus();
    return Problem("this certificate's name is already in the file");
  }

  absl::Status Limit(absl::string_view word, size_t caller) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    RateOverrides& rates = file_.callers[caller].rates;
    if (word == "gateway") return Gateway(caller, &rates.gateway);
    if (parts.first == "max_priority") return MaxPriority(parts.second, &rates.max_priority);
    const std::pair<absl::string_view, std::optional<double>*> limits[] = {
        {"requests_per_second", &rates.requests_per_second},
        {"requests_burst", &rates.requests_burst},
        {"tokens_per_second", &rates.tokens_per_second},
        {"tokens_burst", &rates.tokens_burst}};
    for (const auto& [name, value] : limits) {
      if (name != parts.first) continue;
      const OptionSpec<RateOptions>& spec = OptionSpecOf<RateOptions>(name);
      RateOptions parsed;
      if (!spec.parse(parts.second, &parsed)) {
        return Problem(absl::StrCat(name, " must be ", spec.expected));
      }
      if (value->has_value()) return Problem(absl::StrCat(name, " is already set for this name"));
      *value = std::get<double>(spec.get(parsed));
      return absl::OkStatus();
    }
    return Problem(
        "unknown limit; expected requests_per_second, requests_burst, tokens_per_second, "
        "tokens_burst or max_priority, followed by = and a number, or the word gateway");
  }

  static absl::Status Gateway(size_t caller, bool* gateway) {
    if (caller == 0) return Problem("anonymous cannot be a gateway: anyone could name callers");
    *gateway = true;
    return absl::OkStatus();
  }

  static absl::Status MaxPriority(absl::string_view text, std::optional<int>* most) {
    int level = 0;
    if (!absl::SimpleAtoi(text, &level) || level < 1 || level > kPriorityLevels) {
      return Problem(absl::StrCat("max_priority must be a level from 1 to ", kPriorityLevels));
    }
    if (most->has_value()) return Problem("max_priority is already set for this name");
    *most = level;
    return absl::OkStatus();
  }

  CallersFile file_;
  absl::flat_hash_map<std::string, size_t> names_{{std::string(kAnonymous), 0}};
};

}  // namespace

TokenDigest DigestOf(absl::string_view token) {
  TokenDigest digest;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  return digest;
}

absl::StatusOr<CallersFile> ParseCallers(absl::string_view text, const std::string& file) {
  Parser parser;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    if (absl::Status status = parser.Line(line); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(file, ":", number, ": ", status.message()));
    }
  }
  return parser.Take();
}

}  // namespace sluice
