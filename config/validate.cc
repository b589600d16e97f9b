#include "config/validate.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

absl::Status ErrorIn(const Origins& origins, absl::string_view path, absl::string_view problem) {
  return ConfigError(OriginOf(origins, path), path, problem);
}

absl::Status ValidateModels(const Config& config, const Origins& origins) {
  if (config.models.empty() && config.model_repository.empty()) {
    return ErrorIn(
        origins, "models",
        "no models to serve; give --model NAME=DIR, --model-repository DIR, or a --config "
        "FILE that lists some");
  }
  std::set<std::pair<std::string, int64_t>> seen;
  for (const ModelSpec& model : config.models) {
    if (model.quantize_head && model.quantization == Quantization::kNone) {
      return ErrorIn(
          origins, "models",
          absl::StrFormat("quantize_head of the model %s needs quantization: int8 or int4",
                          model.name));
    }
    if (!IsQuantizationGroup(model.quantization_group)) {
      return ErrorIn(origins, "models",
                     absl::StrFormat("quantization_group of the model %s is %d, must be 32, 64 or "
                                     "128",
                                     model.name, model.quantization_group));
    }
    if (model.quantization_group != kQuantizationGroup &&
        model.quantization != Quantization::kInt4) {
      return ErrorIn(origins, "models",
                     absl::StrFormat("quantization_group of the model %s needs quantization: int4",
                                     model.name));
    }
    if (!seen.emplace(model.name, model.version).second) {
      return ErrorIn(origins, "models",
                     absl::StrFormat("the model %s with version %d is listed twice", model.name,
                                     model.version));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateLadder(const Config& config, const Origins& origins) {
  const LadderOptions& ladder = config.engine.ladder;
  const int32_t limit = config.engine.batch.max_batch_tokens;  // 0 until the model is known
  if (limit != 0 && ladder.min_tokens > limit) {
    return ErrorIn(
        origins, "engine.ladder.min_tokens",
        absl::StrFormat("%d is above engine.batch.max_batch_tokens, %d; lower it to that number",
                        ladder.min_tokens, limit));
  }
  if (ladder.cap_tokens != 0 && ladder.cap_tokens < ladder.min_tokens) {
    return ErrorIn(origins, "engine.ladder.cap_tokens",
                   absl::StrFormat("%d is below engine.ladder.min_tokens, %d", ladder.cap_tokens,
                                   ladder.min_tokens));
  }
  if (ladder.strategy != StrategyKind::kFixed) return absl::OkStatus();
  const std::vector<int32_t>& fixed = ladder.fixed_tokens;
  constexpr absl::string_view kPath = "engine.ladder.fixed_tokens";
  if (fixed.empty())
    return ErrorIn(origins, kPath,
                   "empty; engine.ladder.strategy: fixed needs at least one bucket");
  const auto unordered = std::adjacent_find(fixed.begin(), fixed.end(), std::greater_equal<>());
  if (unordered != fixed.end()) {
    return ErrorIn(origins, kPath,
                   absl::StrFormat("not ascending: %d before %d", unordered[0], unordered[1]));
  }
  if (limit != 0 && fixed.back() > limit) {
    return ErrorIn(
        origins, kPath,
        absl::StrFormat("%d is above engine.batch.max_batch_tokens, %d", fixed.back(), limit));
  }
  return absl::OkStatus();
}

absl::Status ValidateFiles(const Config& config, const Origins& origins) {
  const std::string& journal = config.engine.history.journal;
  if (!journal.empty() && journal == config.engine.ladder.file) {
    return ErrorIn(origins, "engine.history.journal",
                   absl::StrCat(journal, " is also the engine.ladder.file; use another file"));
  }
  return absl::OkStatus();
}

// Checks that no two addresses clash. Addresses with port 0 never clash: the system picks a free
// port for each.
absl::Status ValidateAddresses(const Config& config, const Origins& origins) {
  std::map<std::string, absl::string_view> taken;
  for (const char* path : {"server.grpc.address", "server.metrics.address", "server.admin.address",
                           "server.grpc.health_address"}) {
    const std::string address = FindOption(path)->format(config);
    if (address == Quote("") || absl::EndsWith(address, ":0\"")) continue;
    const auto [other, free] = taken.emplace(address, path);
    if (!free)
      return ErrorIn(origins, path,
                     absl::StrCat(address, " is also ", other->second, "; use another port"));
  }
  return absl::OkStatus();
}

absl::Status ValidateTls(const Config& config, const Origins& origins) {
  const TlsOptions& tls = config.server.tls;
  if (tls.certificate_file.empty() != tls.key_file.empty()) {
    return tls.key_file.empty() ? ErrorIn(origins, "server.tls.key_file",
                                          "empty, but certificate_file is set; set both or neither")
                                : ErrorIn(origins, "server.tls.certificate_file",
                                          "empty, but key_file is set; set both or neither");
  }
  if (tls.certificate_file.empty() && !tls.client_ca_file.empty()) {
    return ErrorIn(origins, "server.tls.client_ca_file",
                   "set, but certificate_file is empty; client certificates need TLS");
  }
  if (!config.server.auth.anonymous && config.server.auth.callers_file.empty()) {
    return ErrorIn(origins, "server.auth.anonymous",
                   "false, but server.auth.callers_file is empty, so no caller could connect");
  }
  return absl::OkStatus();
}

// Returns whether only processes of this host reach the address HOST:PORT.
bool IsLoopback(absl::string_view address) {
  return absl::StartsWith(address, "127.") || absl::StartsWith(address, "localhost:") ||
         absl::StartsWith(address, "[::1]:");
}

absl::Status ValidateAdmin(const Config& config, const Origins& origins) {
  const AdminOptions& admin = config.server.admin;
  const bool identified =
      !config.server.tls.client_ca_file.empty() || !config.server.auth.anonymous;
  if (admin.open_to_network) return absl::OkStatus();
  if (admin.on_grpc_address && !identified && !IsLoopback(config.server.grpc.address)) {
    return ErrorIn(origins, "server.admin.on_grpc_address",
                   absl::StrCat("true, and every client that reaches ", config.server.grpc.address,
                                " can load and unload models. Make callers identify themselves "
                                "(server.auth.anonymous: false, or server.tls.client_ca_file), or "
                                "set server.admin.open_to_network"));
  }
  if (admin.address.empty() || IsLoopback(admin.address)) return absl::OkStatus();
  if (admin.secured && identified) return absl::OkStatus();
  return ErrorIn(origins, "server.admin.address",
                 absl::StrCat(admin.address,
                              " is not a loopback address, and every client that reaches it can "
                              "load and unload models. Set server.admin.secured, with callers that "
                              "must identify themselves, or server.admin.open_to_network"));
}

}  // namespace

absl::Status ValidateConfig(const Config& config, const Origins& origins) {
  for (const auto& validate : {ValidateModels, ValidateLadder, ValidateFiles, ValidateTls,
                               ValidateAddresses, ValidateAdmin}) {
    SLUICE_RETURN_IF_ERROR(validate(config, origins));
  }
  return absl::OkStatus();
}

}  // namespace sluice
