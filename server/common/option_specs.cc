#include "server/common/option_specs.h"

#include <limits>

#include "engine/option_specs.h"

namespace sluice {
namespace {

constexpr Real kRate{0.0, 1e9};

}  // namespace

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
      SLUICE_OPTION(quantization, Choice<Quantization>{},
                    "The precision of the projections. int8: weights in int8 by output channel; "
                    "int4: weights in int4, in groups, on a CPU alone; both with activations in "
                    "int8 by row; none: as the tensors are stored, or as config.json says. Part of "
                    "the numerics profile."),
      SLUICE_OPTION(quantize_head, Boolean{},
                    "Quantise the head too, in int8 and on a CPU alone, with quantization: int8 or "
                    "int4. Without it the head stays as it is stored; the embedding always does."),
      SLUICE_OPTION(quantization_group, Count(32, 128),
                    "With quantization: int4, the rows of a group of weights with a scale of "
                    "their own: 32, 64 or 128. Smaller groups are more exact, and larger in "
                    "memory."),
      SLUICE_OPTION(kv_dtype, Choice<KvType>{},
                    "The type in which KV pages hold keys and values, on a CPU alone. bf16 halves "
                    "their memory and the reads of attention over long contexts, int8 with a scale "
                    "for each token and head takes a little more than a quarter; f32: as computed, "
                    "or as config.json says. Part of the numerics profile."),
      SLUICE_OPTION(ladder, LadderChoiceValue{},
                    "Options of engine.ladder that this model has in place of those of all models; "
                    "in a file a map. sluice ladder set changes them while the model is served."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<ConnectionOptions>>& OptionSpecs<ConnectionOptions>() {
  using S = ConnectionOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(max, Count(1, 1 << 20),
                    "Connections at a time; more are closed at once. Each takes a descriptor: "
                    "where the system allows fewer, they are fewer, and a warning says so."),
      SLUICE_OPTION(max_per_address, Count(0, 1 << 20),
                    "Connections from one address at a time; more are closed at once. 0: all but a "
                    "tenth of max, so that no address has all of them. Set it to max behind a "
                    "proxy, and lower where callers connect by themselves."),
      SLUICE_OPTION(handshake_timeout_us, Timeout(10 * kMinuteUs),
                    "Time for a new connection to finish its TLS and HTTP/2 handshakes."),
      SLUICE_OPTION(idle_timeout_us, Duration(kDayUs),
                    "A connection without calls for so long is closed. 0: never."),
      SLUICE_OPTION(max_age_us, Duration(kDayUs),
                    "So long after it was made, more or less a tenth, a connection is told to make "
                    "no more calls (GOAWAY), so that no peer keeps its place for ever, and clients "
                    "with a balancing policy look for other replicas. Clients connect anew by "
                    "themselves. 0: never."),
      SLUICE_OPTION(age_grace_us, Duration(kDayUs),
                    "Time for the calls of such a connection to end before they are broken off. 0: "
                    "they never are."),
      SLUICE_OPTION(keepalive_time_us, Duration(kDayUs),
                    "A peer that sent nothing for so long is pinged. 0: never."),
      SLUICE_OPTION(keepalive_timeout_us, Timeout(10 * kMinuteUs),
                    "The connection of a pinged peer that does not answer for so long is closed."),
      SLUICE_OPTION(min_ping_interval_us, Duration(kHourUs),
                    "A peer that pings more often while no calls are answered is disconnected "
                    "(GOAWAY too_many_pings). 0: pings are free."),
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
      SLUICE_OPTION(max_message_bytes, Size(1 << 10, (int64_t{1} << 31) - 1),
                    "Largest message in and out; larger ones are RESOURCE_EXHAUSTED."),
      SLUICE_OPTION(memory_quota_bytes, Size(0, 16 * kTebibyte),
                    "Memory that gRPC may use for all calls together. At the limit calls are "
                    "refused or slowed down, the daemon keeps its size. 0: a quarter of "
                    "server.memory.limit_bytes."),
      SLUICE_OPTION(max_unread_bytes, Size(0, 16 * kTebibyte),
                    "Memory of all answers that are not yet sent to callers or that these have not "
                    "read. A request takes from it what its answer may need; where too little is "
                    "left it is RESOURCE_EXHAUSTED, reason unread_answers. One caller gets no more "
                    "than it leaves to others. 0: an eighth of server.memory.limit_bytes."),
      SLUICE_OPTION(max_metadata_bytes, Size(1 << 10, 1 << 24),
                    "Largest sum of a call's metadata: names, values and 32 bytes for each. "
                    "Clients that know HTTP/2 send no more; the connection of one that does is "
                    "closed."),
      SLUICE_OPTION(max_streams, Count(1, 1 << 20),
                    "Calls of one connection at a time. Clients that know HTTP/2 let further ones "
                    "wait; the connection of one that does not is closed."),
      SLUICE_OPTION(max_calls, Count(0, int64_t{1} << 40),
                    "Calls of all connections whose messages have not arrived in whole, and as "
                    "many streams on which nothing is in progress. Further ones end at once with "
                    "RESOURCE_EXHAUSTED. 0: one for each 64 KiB of server.memory.limit_bytes."),
      SLUICE_OPTION(transfer_timeout_us, Timeout(kHourUs),
                    "Time for the message of a unary call to arrive, and for its answer to be "
                    "taken. Then the call ends with RESOURCE_EXHAUSTED. A longer time lets slow "
                    "peers hold memory for longer."),
      Live(SLUICE_OPTION(max_rows, Count(1, 65536),
                         "Rows (sequences) of one request; more are INVALID_ARGUMENT.")),
      Live(SLUICE_OPTION(stream_stall_timeout_us, Timeout(kHourUs),
                         "A stream whose caller does not take a response for this long is given "
                         "up: its requests are cancelled and it ends with RESOURCE_EXHAUSTED; "
                         "after as long again it is cut off. A longer time keeps slow readers, and "
                         "their KV pages, for longer.")),
      SLUICE_OPTION(stream_idle_timeout_us, Timeout(kDayUs),
                    "A stream on which nothing is in progress and no message arrives in whole for "
                    "this long ends with RESOURCE_EXHAUSTED, whether it rests or its message "
                    "stopped half-way. A longer time lets such messages hold memory for longer."),
      SLUICE_OPTION(health_address, Address{.may_be_empty = true},
                    "Address of the gRPC health service alone, without TLS and tokens, for probes; "
                    "port 0 picks a free one; empty: there is none."),
      SLUICE_OPTION(reflection, Boolean{},
                    "Offer gRPC server reflection at server.grpc.address, for clients such as "
                    "grpcurl that have no description of the protocol. Reflection needs no "
                    "credential."),
      SLUICE_SECTION(connection),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<AdminOptions>>& OptionSpecs<AdminOptions>() {
  using S = AdminOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(
          address, Address{.may_be_empty = true},
          "Address of the admin API: buckets, explanations, reloads, loading and "
          "unloading of models, beside the whole inference protocol. Every client that reaches it "
          "can change what is served. Port 0 picks a free one; empty: there is none."),
      SLUICE_OPTION(
          on_grpc_address, Boolean{},
          "Offer the admin API at server.grpc.address too, to every caller that may infer there."),
      SLUICE_OPTION(reflection, Boolean{},
                    "Offer gRPC server reflection wherever the admin API is."),
      SLUICE_OPTION(secured, Boolean{},
                    "server.tls and server.auth hold at server.admin.address too. Set it if that "
                    "is not a loopback address."),
      SLUICE_OPTION(open_to_network, Boolean{},
                    "Serve without `secured` at an address that is not a loopback one. Whoever "
                    "reaches it can then change what is served; without this the daemon does not "
                    "start."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<TlsOptions>>& OptionSpecs<TlsOptions>() {
  using S = TlsOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(certificate_file, Path{},
                    "PEM file of the certificate chain, the daemon's own first, for TLS (1.2 or "
                    "later) on gRPC. It is read again when it changes and by a reload; while it is "
                    "wrong, the last good one is shown. Empty: no TLS."),
      SLUICE_OPTION(key_file, Path{}, "PEM file of its key, without passphrase."),
      SLUICE_OPTION(client_ca_file, Path{},
                    "PEM file of authorities, of which one must have signed a caller's "
                    "certificate. Empty: callers need none."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<AuthOptions>>& OptionSpecs<AuthOptions>() {
  using S = AuthOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(callers_file, Path{},
                    "File of callers, a line each: NAME: token:TEXT, NAME: sha256:HEX (of a token) "
                    "or NAME: certificate:NAME, then limits of its own, such as "
                    "tokens_per_second=1000. Read again as certificates are. Health and reflection "
                    "need no credential. Empty: every caller is anonymous."),
      SLUICE_OPTION(anonymous, Boolean{},
                    "Serve callers without credentials, too: all of them share one key of "
                    "server.rate. False: they are UNAUTHENTICATED, as unknown tokens always are."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<RateOptions>>& OptionSpecs<RateOptions>() {
  using S = RateOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      Live(SLUICE_OPTION(requests_per_second, kRate,
                         "Requests of one caller per second on average; more are "
                         "RESOURCE_EXHAUSTED with push-back, reason rate_limited. callers_file may "
                         "say otherwise. 0: no bound.")),
      Live(SLUICE_OPTION(requests_burst, kRate,
                         "Requests that a caller may make at once after a pause. 0: those of a "
                         "second.")),
      Live(SLUICE_OPTION(tokens_per_second, kRate,
                         "Tokens of one caller per second on average, counted at admission: those "
                         "of its prompts and the most that it lets them generate. 0: no bound.")),
      Live(SLUICE_OPTION(tokens_burst, kRate,
                         "Tokens that a caller may ask for at once after a pause; a request of "
                         "more is admitted when nothing is owed, and then owes the rest. 0: those "
                         "of a second.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<SecretsOptions>>& OptionSpecs<SecretsOptions>() {
  using S = SecretsOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(poll_interval_us, Timeout(kDayUs),
                    "The interval at which the files of server.tls and server.auth are checked for "
                    "changes."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<MetricsOptions>>& OptionSpecs<MetricsOptions>() {
  using S = MetricsOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(address, Address{.may_be_empty = true},
                    "Address of /metrics, /livez, /readyz and the status page; port 0 picks a free "
                    "one; empty: no HTTP server."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<HttpOptions>>& OptionSpecs<HttpOptions>() {
  using S = HttpOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(status_page, Boolean{},
                    "Serve the status page (/ and /status.json) beside /metrics. It shows names of "
                    "models, buckets and traffic, but no content of requests."),
      SLUICE_OPTION(host, Name{253},
                    "A public name by which browsers and scrapers may address the HTTP port. IP "
                    "addresses, names without a dot and names of private domains (.local, "
                    ".internal, .svc and what ends in .cluster.local) are always taken; any other "
                    "Host is refused, so that no page of the internet can read this one through "
                    "a name of its own."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<LogOptions>>& OptionSpecs<LogOptions>() {
  using S = LogOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      Live(SLUICE_OPTION(level, (OneOf{{"trace", "debug", "info", "warn", "error"}}),
                         "Least severity that is logged.")),
      SLUICE_OPTION(format, Choice<LogOptions::Format>{},
                    "One line per record: text, or JSON for collectors."),
      Live(SLUICE_OPTION(access_sample, (Real{0.0, 1.0}),
                         "Share of requests written to the access log, chosen by hashing the "
                         "request id.")),
      SLUICE_OPTION(queue_records, Count(64, 1 << 20),
                    "Records that may wait for the writer; when full the oldest is dropped and "
                    "counted."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<LifecycleOptions>>& OptionSpecs<LifecycleOptions>() {
  using S = LifecycleOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      Live(SLUICE_OPTION(drain_delay_us, Duration(kHourUs),
                         "After SIGTERM: time between NOT_SERVING and the end of admission, for "
                         "load balancers to notice.")),
      Live(SLUICE_OPTION(drain_timeout_us, Duration(kHourUs),
                         "After drain_delay_us: time for accepted requests to finish before they "
                         "are ended with UNAVAILABLE.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<MemoryOptions>>& OptionSpecs<MemoryOptions>() {
  using S = MemoryOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(limit_bytes, Size(0, 16 * kTebibyte),
                    "Memory of the whole process. Models, calls, answers and the queue have their "
                    "parts of it, which the log prints at start; what does not fit is refused. "
                    "Near it, no connection is accepted, then requests are RESOURCE_EXHAUSTED, "
                    "then the largest unread answers are cut. 0: the memory of the cgroup or, "
                    "without a limit there, of the machine."),
      SLUICE_OPTION(copy_weights, Boolean{},
                    "Read the files of weights into memory instead of mapping them, so that a file "
                    "that is cut while the daemon runs does no harm. It takes the bytes of the "
                    "files for as long as the model is served."),
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
