#include "config/option_table.h"

#include <iterator>
#include <utility>

#include "config/value.h"

namespace sluice {
namespace {

template <typename Field, typename Kind>
Option MakeOption(std::string path, Field field, Kind kind, std::string help) {
  return {std::move(path),
          std::move(help),
          kind.Expected(),
          Kind::kShape,
          [=](absl::string_view text, Config* config) { return kind.Parse(text, &field(*config)); },
          [=](const Config& config) { return kind.Format(field(config)); },
          [=](const Config& from, Config* to) { field(*to) = field(from); }};
}

Option Live(Option option) {
  option.live = true;
  option.help += " A reload applies it.";
  return option;
}

// The path in YAML and the member it fills are one token, so they cannot drift apart.
#define OPTION(member, kind, help) \
  MakeOption(                      \
      #member, [](auto& config) -> auto& { return config.member; }, kind, help)

constexpr int64_t kMaxSize = int64_t{16} << 40;
constexpr int64_t kHourUs = 3'600'000'000;
constexpr int64_t kDayUs = 24 * kHourUs;

Integer Count(int64_t min, int64_t max) { return {min, max, Unit::kNone}; }
Integer Duration(int64_t max_us) { return {0, max_us, Unit::kMicroseconds}; }
Integer Timeout(int64_t max_us) { return {100'000, max_us, Unit::kMicroseconds}; }
Integer Size(int64_t min, int64_t max) { return {min, max, Unit::kBytes}; }

Choice<std::string> OneOf(std::initializer_list<std::string> names) {
  Choice<std::string> choice;
  for (const std::string& name : names) choice.choices.emplace_back(name, name);
  return choice;
}

Choice<StrategyKind> Strategies() {
  return {{{"fixed", StrategyKind::kFixed},
           {"geometric", StrategyKind::kGeometric},
           {"hardware_aware", StrategyKind::kHardwareAware},
           {"memory_optimal", StrategyKind::kMemoryOptimal},
           {"adaptive", StrategyKind::kAdaptive}}};
}

Choice<PolicyKind> Policies() {
  return {{{"cut_and_fill", PolicyKind::kCutAndFill},
           {"fifo_packed", PolicyKind::kFifoPacked},
           {"padded_buckets", PolicyKind::kPaddedBuckets},
           {"static_padded", PolicyKind::kStaticPadded}}};
}

Choice<PaddingKind> Paddings() {
  return {{{"zeros", PaddingKind::kZeros},
           {"edge", PaddingKind::kEdge},
           {"reflect", PaddingKind::kReflect},
           {"adaptive", PaddingKind::kAdaptive}}};
}

Choice<LogOptions::Format> LogFormats() {
  return {{{"text", LogOptions::Format::kText}, {"json", LogOptions::Format::kJson}}};
}

std::vector<Option> ModelOptionTable() {
  return {
      Live(OPTION(
          model_repository, Path{},
          "Directory of models to serve beside the list: NAME/config.json, or "
          "NAME/VERSION/config.json "
          "with numbers, of which the highest is loaded; others can be loaded by name at the admin "
          "address. Nothing outside it is opened, wherever links lead. A relative path starts at "
          "the "
          "working directory. Empty: none.")),
  };
}

std::vector<Option> LadderOptionTable() {
  return {
      OPTION(
          engine.ladder.strategy, Strategies(),
          "How the bucket capacities are chosen. adaptive: begins with the geometric ladder, or "
          "that of file, and fits it to the traffic; fixed: those of fixed_tokens; geometric: each "
          "is ratio times the one before; hardware_aware: multiples of the processor's tiles; "
          "memory_optimal: ratio 1.5. The exact maximum is always a bucket. Padded policies have "
          "ladders of their own and ignore this."),
      OPTION(engine.ladder.fixed_tokens, (IntegerList{Count(1, 1 << 20)}),
             "Capacities in tokens for the fixed strategy, ascending, none above "
             "engine.batch.max_batch_tokens. Other strategies ignore it."),
      OPTION(
          engine.ladder.ratio, (Real{1.0, 16.0, /*above_min=*/true}),
          "Growth from one capacity to the next under the geometric strategy, and of the ladder "
          "that the adaptive one begins with. Smaller means less padding and more plans to prepare "
          "and keep."),
      OPTION(engine.ladder.min_tokens, Count(1, 1 << 20),
             "Smallest capacity in tokens; at most engine.batch.max_batch_tokens."),
      OPTION(engine.ladder.cap_tokens, Count(0, 1 << 20),
             "Largest capacity of the geometric strategy beside the exact maximum, at least "
             "min_tokens. 0: none."),
      OPTION(engine.ladder.max_buckets, Count(1, 1024),
             "Most buckets kept. A denser ladder is thinned evenly, its ends are kept."),
      OPTION(engine.ladder.min_bucket_usage, (Real{0.0, 1.0, false, /*below_max=*/true}),
             "At a review, buckets that served a smaller share of the recent batches are dropped, "
             "never the maximum. 0: none for that reason."),
      OPTION(engine.ladder.memory_limit_bytes, Size(0, kMaxSize),
             "Drop buckets, never the maximum, while their plans would need more than this: at "
             "first the largest, later those of the least benefit per MiB. 0: no limit."),
      OPTION(engine.ladder.file, Path{},
             "Keeps the ladder and the measured costs between runs, so that a new process starts "
             "warm: read before warm-up where it was written for the same model, build and device, "
             "written after each change and at the end. A relative path starts at the working "
             "directory. Models after the first append their number: FILE.1. Empty: none."),
      OPTION(engine.ladder.review.interval_us, Duration(kDayUs),
             "Time between reviews of the ladder, which adapt it to the traffic. 0: only when "
             "asked for (sluice optimize)."),
      OPTION(engine.ladder.review.half_life_us,
             (Integer{1'000'000, 30 * kDayUs, Unit::kMicroseconds}),
             "How fast the traffic is forgotten: what was seen this long ago counts half."),
      OPTION(
          engine.ladder.review.min_gain, (Real{0.0, 1.0}),
          "A changed ladder is adopted when its gain on the recent traffic is more than this and a "
          "margin of 0.5 over the root of the number of arrivals looked at. The gain is 1 - "
          "sqrt(device time after / before * mean latency after / before), with the price of "
          "preparing its plans paid."),
  };
}

std::vector<Option> BatchOptionTable() {
  return {
      OPTION(
          engine.batch.policy, Policies(),
          "What forms batches. cut_and_fill: packed, the most useful tokens per measured time. "
          "The others are there to be compared with it: fifo_packed: packed, the longest prefix of "
          "the queue; padded_buckets: rectangles whose rows and positions are powers of two, of "
          "the "
          "first sequence and those whose length rounds up alike; static_padded: rectangles as "
          "wide as the model's longest sequence."),
      OPTION(
          engine.batch.max_batch_tokens, Count(0, 1 << 20),
          "Most tokens in a step batch, and so the largest bucket; a sequence must fit. 0: 4096, "
          "or the model's longest sequence if that is larger."),
      OPTION(engine.batch.max_batch_sequences, Count(1, 65536), "Most sequences in a step batch."),
      OPTION(engine.batch.max_queue_delay_us, Duration(10'000'000),
             "How long the oldest waiting request may be held back for company while the device is "
             "free. 0: never."),
      OPTION(engine.batch.max_overtakes, Count(0, 1'000'000),
             "Most sequences that may run before one that stood ahead of them in the queue. 0: "
             "strictly in order."),
      OPTION(
          engine.batch.prefill_tokens, Count(0, 1 << 20),
          "Prompts are computed in chunks of at most this many tokens, and a step that carries "
          "running sequences computes no more of other prompts. Smaller: the tokens of running "
          "sequences come more evenly. Larger: fewer steps for long prompts, so that their first "
          "tokens and the throughput gain. 0: whole prompts. Only cut_and_fill heeds it."),
      OPTION(engine.batch.continuous, Boolean{},
             "Let new sequences join running ones between two steps. Off, they wait until all of a "
             "batch have ended, which costs throughput and time to first token; it is there to be "
             "compared with. Only cut_and_fill heeds it."),
      OPTION(engine.batch.priority_step_us, Duration(3'600'000'000),
             "Each priority level below the most urgent queues as if it had arrived this much "
             "later, so that urgent requests go first and starve nobody. 0: levels make no "
             "difference."),
      OPTION(
          engine.batch.padding, Paddings(),
          "What the padding of a padded layout holds; it is masked, so that no output depends on "
          "it. zeros: token 0; edge: the last token again; reflect: the sequence backwards from "
          "its end, and forwards again; adaptive: reflect where the padding is shorter than the "
          "sequence, else edge. Packed policies have no padding and ignore this."),
  };
}

std::vector<Option> QueueOptionTable() {
  return {
      OPTION(engine.queue.max_requests, Count(1, 1'000'000),
             "Requests of a model waiting or running; one more is RESOURCE_EXHAUSTED."),
      OPTION(
          engine.queue.max_tokens, Count(1, int64_t{1} << 40),
          "Tokens of the waiting and running requests, with the max_tokens of each row; a request "
          "that would exceed it is RESOURCE_EXHAUSTED, one that has more by itself "
          "INVALID_ARGUMENT."),
      OPTION(engine.queue.max_bytes, Size(1 << 20, int64_t{1} << 50),
             "Memory of the waiting and running requests, with their replies at their longest; a "
             "request that would exceed it is RESOURCE_EXHAUSTED, one that takes more by itself "
             "INVALID_ARGUMENT."),
      OPTION(
          engine.queue.priority_share, (Real{0.0, 1.0, /*above_min=*/true}),
          "Each priority level below the most urgent may fill this share of what the level above "
          "may, of each bound of the queue, so that the rest is kept for those: with 0.9 requests "
          "of the default level are refused at 90 % and those of the lowest at 81 %. 1: no room is "
          "kept."),
      OPTION(engine.history.requests, Count(0, 1'000'000),
             "Finished requests of each model whose scheduling can be explained (sluice explain)."),
      OPTION(engine.history.journal, Path{},
             "File that every arrival (sizes and times, no payload), decision and measured step is "
             "appended to, for the simulator and for sizing. A relative path starts at the working "
             "directory. Models after the first append their number: FILE.1. Empty: none."),
  };
}

std::vector<Option> WatchdogOptionTable() {
  return {
      OPTION(
          engine.watchdog.hang_us, Duration(3'600'000'000),
          "A step that has taken longer than this and than factor times its estimate hangs: its "
          "model's requests end with UNAVAILABLE, the daemon is neither ready nor live, and the "
          "process ends with status 70, to be started again. The same goes for whatever else holds "
          "up a model's scheduling for this long. Time in which the process was stopped does not "
          "count. 0: no watchdog."),
      OPTION(engine.watchdog.factor, (Real{1.0, 1e6}),
             "How many times its estimated cost a step may take, where that is more than hang_us."),
      OPTION(engine.watchdog.grace_us, Duration(60'000'000),
             "After a hang: time between the end of the requests and that of the process, for "
             "answers and logs to leave."),
      OPTION(engine.watchdog.failed_steps, Count(0, 1'000'000),
             "After so many failed steps of a model in a row the daemon is not ready, until one "
             "succeeds. 0: it stays ready."),
  };
}

std::vector<Option> KvOptionTable() {
  return {
      OPTION(
          engine.kv.memory_bytes, Size(0, int64_t{1} << 50),
          "Memory of each model's KV pages, which hold the keys and values of the sequences in "
          "progress. More lets more sequences run at a time and keeps more prefixes; with less, "
          "sequences are preempted and computed again, which costs throughput, never results. 0: a "
          "quarter of what the device has free, at most what max_batch_sequences of the model's "
          "longest sequences take. Too little for the largest step is an error at start."),
      OPTION(engine.kv.prefix_reuse, Boolean{},
             "A sequence that begins like an earlier one begins with its pages, so that shared "
             "prompts are computed once: less time to first token, and more throughput. No result "
             "depends on it."),
  };
}

std::vector<Option> CpuOptionTable() {
  return {
      OPTION(cpu.threads, Count(0, 1024),
             "Compute threads. 0: as many as the cgroup's limit and the affinity mask allow."),
      OPTION(
          cpu.profile, Name{64},
          "Numerics profile by name (instruction set, types and algorithms); auto: the best that "
          "this processor runs. Outputs are bitwise stable within a profile."),
      OPTION(
          cpu.poison, Boolean{},
          "Fill everything that a batch must not read with NaN before it runs. For tests; slow."),
  };
}

std::vector<Option> GrpcOptionTable() {
  return {
      OPTION(server.grpc.address, Address{},
             "Address of the gRPC service; port 0 picks a free one. The port is never shared."),
      OPTION(server.grpc.max_message_bytes, Size(1 << 10, (int64_t{1} << 31) - 1),
             "Largest message in and out; larger ones are RESOURCE_EXHAUSTED."),
      OPTION(
          server.grpc.memory_quota_bytes, Size(0, kMaxSize),
          "Memory that gRPC may use for all calls together. At the limit calls are refused or "
          "slowed down, the daemon keeps its size. 0: a quarter of the cgroup's or the machine's "
          "memory."),
      OPTION(server.grpc.max_metadata_bytes, Size(1 << 10, 1 << 24),
             "Largest sum of a call's metadata: names, values and 32 bytes for each. Clients that "
             "know HTTP/2 send no more; the connection of one that does is closed."),
      OPTION(
          server.grpc.max_streams, Count(1, 1 << 20),
          "Calls of one connection at a time. Clients that know HTTP/2 let further ones wait; the "
          "connection of one that does not is closed."),
      OPTION(server.grpc.transfer_timeout_us, Timeout(kHourUs),
             "Time for the message of a unary call to arrive, and for its answer to be taken. Then "
             "the call ends with RESOURCE_EXHAUSTED. Longer lets slow peers hold memory for "
             "longer."),
      Live(OPTION(server.grpc.max_rows, Count(1, 65536),
                  "Rows (sequences) of one request; more are INVALID_ARGUMENT.")),
      Live(OPTION(
          server.grpc.stream_stall_timeout_us, Timeout(kHourUs),
          "A stream whose caller does not take a response for this long is given up: its "
          "requests are cancelled and it ends with RESOURCE_EXHAUSTED; after as long again it "
          "is cut off. Longer keeps slow readers, and their KV pages, for longer.")),
      OPTION(server.grpc.health_address, Address{.may_be_empty = true},
             "Address of the gRPC health service alone, without TLS and tokens, for probes; port 0 "
             "picks a free one; empty: none."),
      OPTION(server.grpc.connection.max, Count(1, 1 << 20),
             "Connections at a time; more are closed at once. Each takes a descriptor: where the "
             "system allows fewer, they are fewer, and a warning says so."),
      OPTION(server.grpc.connection.handshake_timeout_us, Timeout(600'000'000),
             "Time for a new connection to finish its TLS and HTTP/2 handshakes."),
      OPTION(server.grpc.connection.idle_timeout_us, Duration(kDayUs),
             "A connection without calls for so long is closed. 0: never."),
      OPTION(
          server.grpc.connection.max_age_us, Duration(kDayUs),
          "So long after it was made, more or less a tenth, a connection is told to make no more "
          "calls (GOAWAY), so that clients with a balancing policy look for other replicas. 0: "
          "never."),
      OPTION(server.grpc.connection.age_grace_us, Duration(kDayUs),
             "Time for the calls of such a connection to end before they are broken off. 0: they "
             "never are."),
      OPTION(server.grpc.connection.keepalive_time_us, Duration(kDayUs),
             "A peer that sent nothing for so long is pinged. 0: never."),
      OPTION(server.grpc.connection.keepalive_timeout_us, Timeout(600'000'000),
             "The connection of a pinged peer that does not answer for so long is closed."),
      OPTION(server.grpc.connection.min_ping_interval_us, Duration(kHourUs),
             "A peer that pings more often while no calls are answered is sent away (GOAWAY "
             "too_many_pings). 0: pings are free."),
  };
}

std::vector<Option> AdminOptionTable() {
  return {
      OPTION(server.admin.address, Address{.may_be_empty = true},
             "Address of the admin API: buckets, explanations, reloads, loading and unloading of "
             "models, beside the whole inference protocol. Whoever reaches it may change what is "
             "served. Port 0 picks a free one; empty: nowhere."),
      OPTION(server.admin.on_grpc_address, Boolean{},
             "Offer the admin API at server.grpc.address too, to all who may infer there."),
      OPTION(server.admin.reflection, Boolean{},
             "Offer gRPC server reflection wherever the admin API is."),
      OPTION(
          server.admin.secured, Boolean{},
          "server.tls and server.auth hold at server.admin.address too. Wanted where that is not "
          "the loopback's."),
  };
}

std::vector<Option> SecurityOptionTable() {
  return {
      OPTION(server.tls.certificate_file, Path{},
             "PEM file of the certificate chain, the daemon's own first, for TLS (1.2 or later) on "
             "gRPC. It is read again when it changes and by a reload; while it is wrong, what was "
             "last "
             "good is shown. Empty: no TLS."),
      OPTION(server.tls.key_file, Path{}, "PEM file of its key, without passphrase."),
      OPTION(
          server.tls.client_ca_file, Path{},
          "PEM file of authorities, of which one must have signed a caller's certificate. Empty: "
          "callers need none."),
      OPTION(
          server.auth.callers_file, Path{},
          "File of callers, a line each: NAME: token:TEXT, NAME: sha256:HEX (of a token) or NAME: "
          "certificate:NAME, then limits of its own, such as tokens_per_second=1000. Read again as "
          "certificates are. Health and reflection need no credential. Empty: everybody is "
          "anonymous."),
      OPTION(server.auth.anonymous, Boolean{},
             "Serve callers without credentials, too: all of them share one key of server.rate. "
             "False: "
             "they are UNAUTHENTICATED, as unknown tokens always are."),
      Live(OPTION(server.rate.requests_per_second, (Real{0.0, 1e9}),
                  "Requests of one caller per second on average; more are RESOURCE_EXHAUSTED with "
                  "push-back, reason rate_limited. callers_file may say otherwise. 0: no bound.")),
      Live(OPTION(server.rate.requests_burst, (Real{0.0, 1e9}),
                  "Requests that a caller may make at once after a pause. 0: those of a second.")),
      Live(OPTION(
          server.rate.tokens_per_second, (Real{0.0, 1e9}),
          "Tokens of one caller per second on average, counted at admission: those of its prompts "
          "and the most that it lets them generate. 0: no bound.")),
      Live(OPTION(
          server.rate.tokens_burst, (Real{0.0, 1e9}),
          "Tokens that a caller may ask for at once after a pause; a request of more is admitted "
          "when nothing is owed, and then owes the rest. 0: those of a second.")),
      OPTION(server.secrets.poll_interval_us, Timeout(kDayUs),
             "Time between looks at the files of server.tls and server.auth."),
  };
}

std::vector<Option> ServerOptionTable() {
  return {
      OPTION(server.metrics.address, Address{.may_be_empty = true},
             "Address of /metrics, /livez, /readyz and the status page; port 0 picks a free one; "
             "empty: no HTTP server."),
      OPTION(
          server.http.status_page, Boolean{},
          "Serve the status page (/ and /status.json) beside /metrics. It tells names of models, "
          "buckets and traffic, no content of requests."),
      Live(OPTION(server.log.level, OneOf({"trace", "debug", "info", "warn", "error"}),
                  "Least severity that is logged.")),
      OPTION(server.log.format, LogFormats(), "One line per record: text, or JSON for collectors."),
      OPTION(server.log.access_sample, (Real{0.0, 1.0}),
             "Share of requests written to the access log, chosen by hashing the request id."),
      OPTION(server.log.queue_records, Count(64, 1 << 20),
             "Records that may wait for the writer; when full the oldest is dropped and counted."),
      Live(OPTION(
          server.lifecycle.drain_delay_us, Duration(3'600'000'000),
          "After SIGTERM: time between NOT_SERVING and the end of admission, for load balancers "
          "to notice.")),
      Live(OPTION(
          server.lifecycle.drain_timeout_us, Duration(3'600'000'000),
          "After drain_delay_us: time for accepted requests to finish before they are ended with "
          "UNAVAILABLE.")),
  };
}

#undef OPTION

}  // namespace

std::vector<Option> BuildOptionTable() {
  std::vector<Option> table;
  for (auto part : {ModelOptionTable(), LadderOptionTable(), BatchOptionTable(), KvOptionTable(),
                    QueueOptionTable(), WatchdogOptionTable(), CpuOptionTable(), GrpcOptionTable(),
                    AdminOptionTable(), SecurityOptionTable(), ServerOptionTable()}) {
    std::move(part.begin(), part.end(), std::back_inserter(table));
  }
  return table;
}

}  // namespace sluice
