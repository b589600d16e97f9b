#include <iterator>
#include <utility>

#include "config/option_row.h"
#include "config/option_table.h"

namespace sluice {
namespace {

Choice<LogOptions::Format> LogFormats() {
  return {{{"text", LogOptions::Format::kText}, {"json", LogOptions::Format::kJson}}};
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
      OPTION(server.grpc.stream_idle_timeout_us, Timeout(kDayUs),
             "A stream on which nothing is in progress and no message arrives in whole for this "
             "long ends with RESOURCE_EXHAUSTED, whether it rests or its message stopped half-way. "
             "Longer lets such messages hold memory for longer."),
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
             "gRPC. It is read again when it changes and by a reload; while it is wrong, the last "
             "good "
             "one is shown. Empty: no TLS."),
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
             "False: they are UNAUTHENTICATED, as unknown tokens always are."),
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

std::vector<Option> ProcessOptionTable() {
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

}  // namespace

std::vector<Option> ServerOptionTable() {
  std::vector<Option> table;
  for (auto part :
       {GrpcOptionTable(), AdminOptionTable(), SecurityOptionTable(), ProcessOptionTable()}) {
    std::move(part.begin(), part.end(), std::back_inserter(table));
  }
  return table;
}

}  // namespace sluice
