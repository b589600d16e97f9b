#include "server/common/option_specs.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "engine/option_specs.h"

namespace sluice {
namespace {

constexpr Real kRate{0.0, 1e9};

constexpr Name kDraftName{128};
const Integer kDraftTokens = Count(1, SpeculationOptions::kMaxTokens);
const Integer kDraftSequences = Count(1, 64);

}  // namespace

std::string SpeculationValue::Expected() const {
  return absl::StrCat("none, ngram, or a map of draft (", kDraftName.Expected(), "), tokens (",
                      kDraftTokens.Expected(), ") and sequences (", kDraftSequences.Expected(),
                      ")");
}

bool SpeculationValue::Parse(absl::string_view text, SpeculationOptions* value) const {
  SpeculationOptions parsed;
  if (text == "none") {
    parsed.kind = Speculation::kNone;
  } else if (text != "ngram") {
    const std::vector<absl::string_view> items = absl::StrSplit(text, ' ', absl::SkipWhitespace());
    for (const absl::string_view item : items) {
      const std::pair<absl::string_view, absl::string_view> halves =
          absl::StrSplit(item, absl::MaxSplits('=', 1));
      if (!Set(halves.first, halves.second, &parsed).ok()) return false;
    }
    if (items.empty()) return false;
  }
  *value = std::move(parsed);
  return true;
}

std::string SpeculationValue::Format(const SpeculationOptions& value) const {
  SpeculationOptions plain;
  plain.kind = value.kind;
  if (value == plain) return std::string(NameOf(value.kind));
  return absl::StrCat(value.draft.empty() ? "" : absl::StrCat("draft=", value.draft, " "),
                      "tokens=", value.tokens, " sequences=", value.sequences);
}

absl::Status SpeculationValue::Set(absl::string_view name, absl::string_view value,
                                   SpeculationOptions* options) {
  const auto result = [&](bool parsed, const std::string& expected) {
    if (parsed) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected ", expected, ", got ", Quote(value)));
  };
  if (name == "tokens") {
    return result(kDraftTokens.Parse(value, &options->tokens), kDraftTokens.Expected());
  }
  if (name == "sequences") {
    return result(kDraftSequences.Parse(value, &options->sequences), kDraftSequences.Expected());
  }
  if (name != "draft") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown key ", Quote(name), "; expected draft, tokens or sequences"));
  }
  SLUICE_RETURN_IF_ERROR(result(kDraftName.Parse(value, &options->draft), kDraftName.Expected()));
  options->kind = Speculation::kModel;
  return absl::OkStatus();
}

template <>
const std::vector<OptionSpec<ModelSpec>>& OptionSpecs<ModelSpec>() {
  using S = ModelSpec;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(name, Name{128}, "The name that requests give."),
      SLUICE_OPTION(path, Path{.may_be_empty = false},
                    "The directory of config.json and model.safetensors. In a file, a relative "
                    "path starts at the directory of the file."),
      SLUICE_OPTION(version, Count(1, std::numeric_limits<int32_t>::max()),
                    "Two models may have one name, but not one name and version."),
      SLUICE_OPTION(
          quantization, Choice<Quantization>{},
          "The precision of the projections. int8: weights in int8 by output channel; int4: "
          "weights in int4, in groups, on a CPU only; both with activations in int8 by row; none: "
          "as the tensors are stored, or as config.json specifies. Part of the numerics profile."),
      SLUICE_OPTION(
          quantize_head, Boolean{},
          "Also quantise the head, in int8 and on a CPU only; needs quantization: int8 or int4. "
          "Otherwise the head keeps its stored type, as the embedding always does."),
      SLUICE_OPTION(quantization_group, Count(32, 128),
                    "With quantization: int4, the rows of weights that share one scale: 32, 64 or "
                    "128. Smaller groups are more accurate and take more memory."),
      SLUICE_OPTION(kv_dtype, Choice<KvType>{},
                    "The type of keys and values in KV pages, on a CPU only. bf16 halves their "
                    "memory and the reads of attention over long contexts. int8, with a scale for "
                    "each token and head, takes a little more than a quarter. f32: as computed, or "
                    "as config.json specifies. Part of the numerics profile."),
      SLUICE_OPTION(adapters, Path{},
                    "The directory of the model's low-rank adapters: each folder has the files of "
                    "PEFT and is served as MODEL:FOLDER. Empty: the folder adapters in the model's "
                    "directory, if there is one. In a file, a relative path starts at the "
                    "directory of the file."),
      SLUICE_OPTION(adapter_memory_bytes, Size(1, int64_t{1} << 40),
                    "The most memory of the model's adapters, at most half of the memory that is "
                    "free after the weights. If more are used, those that were used least recently "
                    "are evicted, and loaded again when a request needs them. docs/adapters.md has "
                    "the rule."),
      SLUICE_OPTION(
          speculation, SpeculationValue{},
          "Whether a step also computes drafted tokens after the last token of a row that "
          "generates. ngram: the tokens that followed an earlier place with the same last tokens, "
          "in the prompt or the answer. Drafted tokens that differ from the drawn ones are "
          "dropped, so no result depends on it. none: no token is drafted. draft: the name of a "
          "smaller served model with the same vocabulary, which drafts instead of n-grams. tokens: "
          "the most drafted tokens of a row in a step, 8 by default. sequences: the most rows of a "
          "step with drafted tokens. With 1, the default, tokens are drafted only while no other "
          "row waits or runs; a request that arrives during such a step waits for its end. A "
          "larger number raises the throughput of a few rows whose drafts are often right, but "
          "each step takes longer for all of them. docs/generation.md explains when tokens are "
          "drafted."),
      SLUICE_OPTION(
          ladder, LadderChoiceValue{},
          "Options of engine.ladder for this model, which replace the options for all models; in a "
          "file a map. sluice ladder set changes them while the model is served."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<ConnectionOptions>>& OptionSpecs<ConnectionOptions>() {
  using S = ConnectionOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(max, Count(1, 1 << 20),
                    "The most connections at a time; more are closed at once. Each takes a "
                    "descriptor; if the system allows fewer, a warning states the number."),
      SLUICE_OPTION(max_per_address, Count(0, 1 << 20),
                    "The most connections from one address at a time; more are closed at once. "
                    "Behind a proxy set it to max; set it lower if callers connect directly. 0: "
                    "all but a tenth of max, so that no address has all of them."),
      Advanced(SLUICE_DURATION(handshake_timeout, Timeout(10 * kMinuteUs),
                               "Time for a new connection to finish its TLS and HTTP/2 "
                               "handshakes.")),
      Advanced(SLUICE_DURATION(idle_timeout, Duration(kDayUs),
                               "A connection without calls for this long is closed. 0: never.")),
      SLUICE_DURATION(max_age, Duration(kDayUs),
                      "A connection of this age, give or take a tenth, is closed gracefully "
                      "(GOAWAY). Clients connect again by themselves, and clients with a balancing "
                      "policy find other replicas. 0: never."),
      Advanced(SLUICE_DURATION(age_grace, Duration(kDayUs),
                               "After max_age: time for the calls of a connection to end before "
                               "they are cut off. 0: never.")),
      Advanced(SLUICE_DURATION(keepalive_time, Duration(kDayUs),
                               "A peer that sent nothing for this long is pinged. 0: never.")),
      Advanced(SLUICE_DURATION(keepalive_timeout, Timeout(10 * kMinuteUs),
                               "The connection of a pinged peer that does not answer for this long "
                               "is closed.")),
      Advanced(SLUICE_DURATION(min_ping_interval, Duration(kHourUs),
                               "A peer that pings more often than this while no calls are answered "
                               "is disconnected (GOAWAY too_many_pings). 0: pings are not "
                               "limited.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<GrpcOptions>>& OptionSpecs<GrpcOptions>() {
  using S = GrpcOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(address, Address{},
                    "Address of the gRPC service; port 0 picks a free one. The port is never "
                    "shared."),
      SLUICE_OPTION(
          max_message_bytes, Size(0, (int64_t{1} << 31) - 1),
          "The largest request or response; larger ones end with RESOURCE_EXHAUSTED. 0: 64 MiB. "
          "This default is lowered to four fifths of memory_quota_bytes if these are less."),
      Advanced(SLUICE_OPTION(memory_quota_bytes, Size(0, 16 * kTebibyte),
                             "Memory that gRPC may use for all calls together. At the limit calls "
                             "are refused or slowed down. 0: a quarter of "
                             "server.memory.limit_bytes.")),
      Advanced(SLUICE_OPTION(
          max_unread_bytes, Size(0, 16 * kTebibyte),
          "Memory of all answers that are not yet sent, or that callers have not read. Each "
          "request reserves the memory that its answer may need. If too little is left, the "
          "request ends with RESOURCE_EXHAUSTED, reason unread_answers. A caller may "
          "take at most the amount that then remains for others, so a single caller gets about "
          "half. 0: an eighth of server.memory.limit_bytes.")),
      Advanced(SLUICE_OPTION(max_metadata_bytes, Size(1 << 10, 1 << 24),
                             "Largest sum of a call's metadata: names, values and 32 bytes for "
                             "each. Clients that implement HTTP/2 correctly send no more; the "
                             "connection of a client that does is closed.")),
      Advanced(SLUICE_OPTION(max_streams, Count(1, 1 << 20),
                             "The most calls of one connection at a time. Clients that implement "
                             "HTTP/2 correctly let further calls wait; the connection of a client "
                             "that does not is closed.")),
      Advanced(SLUICE_OPTION(
          max_calls, Count(0, int64_t{1} << 40),
          "The most calls, over all connections, whose messages have not arrived completely, and "
          "the most idle streams. If there are more, the oldest of the peer with the most ends "
          "with RESOURCE_EXHAUSTED. The most calls in progress are four times this number, with "
          "8 KiB of memory for each, and one address has at most 1.1 times this number of them. "
          "0: one for each 512 KiB of server.memory.limit_bytes.")),
      Advanced(SLUICE_DURATION(transfer_timeout, Timeout(kHourUs),
                               "Time for the message of a unary call to arrive, and for its answer "
                               "to be read. Then the call ends with RESOURCE_EXHAUSTED. A longer "
                               "time lets slow peers hold memory for longer.")),
      Live(SLUICE_OPTION(max_rows, Count(1, 65536),
                         "The most rows (sequences) of one request; more are INVALID_ARGUMENT.")),
      Advanced(
          Live(SLUICE_DURATION(stream_stall_timeout, Timeout(kHourUs),
                               "If a stream's caller does not read a response for this long, its "
                               "requests are cancelled and it ends with RESOURCE_EXHAUSTED. It is "
                               "cut off after the same time again. A longer time keeps slow "
                               "readers, and their KV pages, for longer."))),
      Advanced(SLUICE_DURATION(stream_idle_timeout, Timeout(kDayUs),
                               "A stream ends with RESOURCE_EXHAUSTED if nothing is in progress on "
                               "it and no message arrives completely for this long. This applies "
                               "to an idle stream and to a message that stopped half-way. A longer "
                               "time lets such messages hold memory for longer.")),
      SLUICE_OPTION(health_address, Address{.may_be_empty = true},
                    "Address of the gRPC health service only, without TLS and tokens, for probes. "
                    "Port 0 picks a free one. Empty: there is none."),
      SLUICE_OPTION(reflection, Boolean{},
                    "Offer gRPC server reflection at server.grpc.address, for clients such as "
                    "grpcurl. Such clients need no description of the protocol. Reflection needs "
                    "no credential."),
      SLUICE_SECTION(connection),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<AdminOptions>>& OptionSpecs<AdminOptions>() {
  using S = AdminOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(address, Address{.may_be_empty = true},
                    "Address of the admin API; port 0 picks a free one. The API shows buckets and "
                    "explanations, and reloads, loads and unloads models. The address also serves "
                    "the inference protocol and gRPC reflection. Empty: there is none."),
      Advanced(SLUICE_OPTION(on_grpc_address, Boolean{},
                             "Offer the admin API and reflection at server.grpc.address too, to "
                             "every caller that may infer there.")),
      SLUICE_OPTION(secured, Boolean{},
                    "server.tls and server.auth apply at server.admin.address too. Set it unless "
                    "that is a loopback address."),
      SLUICE_OPTION(open_to_network, Boolean{},
                    "Serve without `secured` at an address that is not a loopback address. Every "
                    "client that reaches it can then change the served models and their ladders. "
                    "Without this option the daemon does not start."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<TlsOptions>>& OptionSpecs<TlsOptions>() {
  using S = TlsOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(certificate_file, Path{},
                    "PEM file of the certificate chain for TLS on gRPC, the daemon's own first. "
                    "TLS is 1.2 or later. It is read again when it changes and by a reload; while "
                    "it is invalid, the last valid one is used. Empty: no TLS."),
      SLUICE_OPTION(key_file, Path{}, "PEM file of the certificate's key, without passphrase."),
      SLUICE_OPTION(client_ca_file, Path{},
                    "PEM file of certificate authorities; one of them must have signed a caller's "
                    "certificate. Empty: callers need no certificate."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<AuthOptions>>& OptionSpecs<AuthOptions>() {
  using S = AuthOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(callers_file, Path{},
                    "File of callers, one in a line. A line is NAME: token:TEXT, NAME: sha256:HEX "
                    "(of a token) or NAME: certificate:NAME, followed by the caller's own limits, "
                    "such as tokens_per_second=1000. The file is read again as certificates are. "
                    "Health and reflection need no credential. Empty: every caller is anonymous."),
      SLUICE_OPTION(
          anonymous, Boolean{},
          "Serve callers without credentials too. All of them share one limit of server.rate. "
          "false: their calls end with UNAUTHENTICATED, as calls with unknown tokens always do."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<RateOptions>>& OptionSpecs<RateOptions>() {
  using S = RateOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      Live(SLUICE_OPTION(requests_per_second, kRate,
                         "Requests of one caller per second on average. More are "
                         "RESOURCE_EXHAUSTED with push-back, reason rate_limited. callers_file may "
                         "set another rate. 0: no limit.")),
      Advanced(Live(SLUICE_OPTION(requests_burst, kRate,
                                  "Requests that a caller may make at once after a pause. 0: the "
                                  "requests of one second."))),
      Live(SLUICE_OPTION(
          tokens_per_second, kRate,
          "Tokens of one caller per second on average, counted at admission. A request counts its "
          "prompt tokens and the most tokens that it may generate. 0: no limit.")),
      Advanced(Live(SLUICE_OPTION(tokens_burst, kRate,
                                  "Tokens that a caller may request at once after a pause. A "
                                  "larger request is admitted when the caller owes no tokens; the "
                                  "caller then owes the rest. 0: the tokens of one second."))),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<SecretsOptions>>& OptionSpecs<SecretsOptions>() {
  using S = SecretsOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      ForTests(SLUICE_DURATION(
          poll_interval, Timeout(kDayUs),
          "How often the files of server.tls and server.auth are checked for changes.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<MetricsOptions>>& OptionSpecs<MetricsOptions>() {
  using S = MetricsOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(address, Address{.may_be_empty = true},
                    "Address of /metrics, /livez, /readyz and the status page; port 0 picks a free "
                    "one. Empty: no HTTP server."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<HttpOptions>>& OptionSpecs<HttpOptions>() {
  using S = HttpOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      Advanced(SLUICE_OPTION(status_page, Boolean{},
                             "Serve the status page (/ and /status.json) next to /metrics. It "
                             "shows names of models, buckets and traffic, but no content of "
                             "requests.")),
      SLUICE_OPTION(
          host, Name{253},
          "A public name that browsers and scrapers may use for the HTTP port. IP addresses, names "
          "without a dot and names of private domains (.local, .internal, .svc and names that end "
          "in .cluster.local) are always accepted. Requests with any other Host are refused, so "
          "that a web page elsewhere cannot read this one by giving its own name this address."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<LogOptions>>& OptionSpecs<LogOptions>() {
  using S = LogOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      Live(SLUICE_OPTION(level, (OneOf{{"trace", "debug", "info", "warn", "error"}}),
                         "The lowest severity that is logged.")),
      SLUICE_OPTION(format, Choice<LogOptions::Format>{},
                    "One line per record: text, or json for collectors."),
      Live(SLUICE_OPTION(access_sample, (Real{0.0, 1.0}),
                         "Share of requests written to the access log, chosen at random. Refusals "
                         "of identified callers are logged too, at most one a second for each "
                         "caller.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<LifecycleOptions>>& OptionSpecs<LifecycleOptions>() {
  using S = LifecycleOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      Live(SLUICE_DURATION(drain_delay, Duration(kHourUs),
                           "After SIGTERM: time between NOT_SERVING and the end of admission, for "
                           "load balancers to notice. Without it, a call that arrives while the "
                           "daemon stops may be lost.")),
      Live(SLUICE_DURATION(drain_timeout, Duration(kHourUs),
                           "After drain_delay: time for accepted requests to finish before they "
                           "end with UNAVAILABLE.")),
      Advanced(
          Live(SLUICE_OPTION(ready_without_models, Boolean{},
                             "Report readiness without a model, for an empty model_repository."))),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<MemoryOptions>>& OptionSpecs<MemoryOptions>() {
  using S = MemoryOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(
          limit_bytes, Size(0, 16 * kTebibyte),
          "Memory of the whole process. The log prints at start how it is divided among models, "
          "calls, answers and the queue. A request or model that does not fit is refused. Near the "
          "limit, the daemon first closes new connections, then refuses requests with "
          "RESOURCE_EXHAUSTED, then ends the largest unread answers. 0: the memory of the cgroup "
          "or, without a limit there, of the machine."),
      Advanced(SLUICE_OPTION(copy_weights, Boolean{},
                             "Read the weight files into memory instead of mapping them. The "
                             "daemon then survives a weight file that is truncated while it runs. "
                             "This takes as much memory as the files while the model is served.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<ServerOptions>>& OptionSpecs<ServerOptions>() {
  using S = ServerOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>(
      {SLUICE_SECTION(memory), SLUICE_SECTION(grpc), SLUICE_SECTION(admin), SLUICE_SECTION(tls),
       SLUICE_SECTION(auth), SLUICE_SECTION(rate), SLUICE_SECTION(secrets), SLUICE_SECTION(metrics),
       SLUICE_SECTION(http), SLUICE_SECTION(log), SLUICE_SECTION(lifecycle)}));
  return specs;
}

}  // namespace sluice
