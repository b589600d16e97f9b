// Options of the server edge. Filled by config/, which enforces the ranges given here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct ModelSpec {
  std::string name;  // [A-Za-z0-9_.-]{1,128}
  std::string path;  // directory, at most 4096 bytes; a file's relative ones start at its directory
  int64_t version = 1;  // [1, 2^31 - 1]; name and version together are unique
};

// Of the gRPC service. What the daemon has is shared by all peers, so none keeps a connection for
// nothing. Zero, where it is in the range, means never.
struct ConnectionOptions {
  // Connections at a time; more are closed at once. Each takes a descriptor: where the system allows
  // fewer, they are fewer, and a warning says so. [1, 2^20].
  int32_t max = 10'000;
  // Time for a new connection to finish its TLS and HTTP/2 handshakes. [100 ms, 10 min].
  int64_t handshake_timeout_us = 10'000'000;
  // A connection without calls for so long is closed. [0, 24 h].
  int64_t idle_timeout_us = 600'000'000;
  // So long after it was made, more or less a tenth, a connection is told to make no more calls
  // (GOAWAY), so that clients with a balancing policy look for other replicas. [0, 24 h].
  int64_t max_age_us = 0;
  // Time for the calls of such a connection to end before they are broken off. [0, 24 h].
  int64_t age_grace_us = 300'000'000;
  // A peer that sent nothing for so long is pinged ... [0, 24 h].
  int64_t keepalive_time_us = 60'000'000;
  // ... and its connection closed when it does not answer for this long. [100 ms, 10 min].
  int64_t keepalive_timeout_us = 20'000'000;
  // A peer that pings more often while no calls are answered is sent away (GOAWAY). [0, 1 h].
  int64_t min_ping_interval_us = 5'000'000;
};

struct GrpcOptions {
  // HOST:PORT of the gRPC service; port 0 picks a free one. The port is never shared.
  std::string address = "0.0.0.0:8001";
  // Largest message in and out; larger ones are RESOURCE_EXHAUSTED. [1 KiB, 2^31 - 1].
  int64_t max_message_bytes = 64 << 20;
  // Memory that gRPC may use for all calls together; 0: a quarter of the cgroup's or the machine's
  // memory. At the limit calls are refused or slowed down, the daemon keeps its size.
  int64_t memory_quota_bytes = 0;
  // Largest sum of a call's metadata, names, values and 32 bytes for each. Clients that know HTTP/2
  // send no more; the connection of one that does is closed. [1 KiB, 16 MiB].
  int64_t max_metadata_bytes = 8 << 10;
  // Calls of one connection at a time. Clients that know HTTP/2 let further ones wait; the connection
  // of one that does not is closed. [1, 2^20].
  int32_t max_streams = 1024;
  // Time for the message of a unary call to arrive, and for its answer to be taken; then the call
  // ends with RESOURCE_EXHAUSTED. [100 ms, 1 h].
  int64_t transfer_timeout_us = 60'000'000;
  // Rows of one request. [1, 65536].
  int32_t max_rows = 1024;
  // A stream whose caller does not take a response for this long is given up: its requests are
  // cancelled and it ends with RESOURCE_EXHAUSTED; after as long again it is cut off. What waits is
  // bounded by the tokens that its requests may generate. [100 ms, 1 h].
  int64_t stream_stall_timeout_us = 30'000'000;
  // A stream on which nothing is in progress and no message arrives in whole for this long ends
  // with RESOURCE_EXHAUSTED: gRPC does not tell a stream that rests from a message that stopped
  // half-way, which is kept in memory. [100 ms, 24 h].
  int64_t stream_idle_timeout_us = 600'000'000;
  // HOST:PORT of the health service alone, without TLS and tokens, for probes; port 0 picks a free one;
  // empty: none.
  std::string health_address{};
  ConnectionOptions connection;
};

// What changes the daemon rather than asks it for an answer: sluice.admin.v1, loading and unloading of
// models. Whoever reaches it may change what is served.
struct AdminOptions {
  // HOST:PORT where all that is offered, beside the whole inference protocol; port 0 picks a free one;
  // empty: nowhere.
  std::string address = "127.0.0.1:8003";
  // Offer it at grpc.address too.
  bool on_grpc_address = false;
  // Server reflection, wherever the admin API is.
  bool reflection = true;
  // TLS and AuthOptions hold at this address too.
  bool secured = false;
};

// TLS of gRPC. While the daemon runs, the files are read again when they change; what is wrong with
// them leaves the last good ones in use.
struct TlsOptions {
  // PEM files of the certificate chain, the daemon's own first, and of its key. Both or neither;
  // neither: no TLS.
  std::string certificate_file{};
  std::string key_file{};
  // PEM file of authorities. Callers then need a certificate that one of them signed; empty: none.
  std::string client_ca_file{};
};

// Who may call. Health and reflection are for everybody.
struct AuthOptions {
  // Names of callers with their credentials and limits, see security/callers_file.h; read again when
  // it changes, as TlsOptions are. Empty: everybody is anonymous.
  std::string callers_file{};
  // Serve callers without credentials, too; all of them are one caller to RateOptions. Else they are
  // UNAUTHENTICATED.
  bool anonymous = true;
};

// What one caller may ask for, where callers_file does not say otherwise. Bursts: what may come at once
// after a pause; 0: what comes in a second.
struct RateOptions {
  double requests_per_second = 0;  // 0: no bound. [0, 1e9]
  double requests_burst = 0;       // [0, 1e9]
  // Of a request count its prompt's and the most that it may generate. 0: no bound. [0, 1e9]
  double tokens_per_second = 0;
  double tokens_burst = 0;  // [0, 1e9]
};

struct SecretsOptions {
  // Time between looks at the files of TlsOptions and AuthOptions. [100 ms, 24 h].
  int64_t poll_interval_us = 10'000'000;
};

struct MetricsOptions {
  // HOST:PORT of /metrics, /livez, /readyz and the status page; port 0 picks a free one; empty: no HTTP server.
  std::string address = "0.0.0.0:8002";
};

struct HttpOptions {
  // Serve the status page (/ and /status.json) beside /metrics. It tells names of models, buckets and
  // traffic, no content of requests.
  bool status_page = true;
};

struct LogOptions {
  enum class Format { kText, kJson };
  std::string level = "info";  // trace, debug, info, warn, error
  Format format = Format::kText;
  // Share of requests written to the access log, chosen by hashing the request id. [0, 1].
  double access_sample = 0.01;
  // Records that may wait for the writer; when full the oldest is dropped and counted.
  // [64, 2^20].
  int32_t queue_records = 8192;
};

struct LifecycleOptions {
  // After SIGTERM: time between NOT_SERVING and the end of admission, for balancers to notice.
  // [0, 1 h].
  int64_t drain_delay_us = 0;
  // After that: time for accepted requests to finish before they are ended with UNAVAILABLE. [0, 1
  // h].
  int64_t drain_timeout_us = 30'000'000;
};

struct ServerOptions {
  GrpcOptions grpc;
  AdminOptions admin;
  TlsOptions tls;
  AuthOptions auth;
  RateOptions rate;
  SecretsOptions secrets;
  MetricsOptions metrics;
  HttpOptions http;
  LogOptions log;
  LifecycleOptions lifecycle;
};

}  // namespace sluice
