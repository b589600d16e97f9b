// Options of the server. The effect, the unit and the range of each are said in
// server/common/option_specs.cc; a plain number counts what the end of the name says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/enum_names.h"

namespace sluice {

// A model to serve. Name and version together are unique.
struct ModelSpec {
  std::string name;
  std::string path;
  int64_t version = 1;
};

// Of the gRPC service. All peers share what the daemon has, so no peer keeps a connection for
// nothing.
struct ConnectionOptions {
  int32_t max = 10'000;
  int64_t handshake_timeout_us = 10'000'000;
  int64_t idle_timeout_us = 600'000'000;
  int64_t max_age_us = 0;
  int64_t age_grace_us = 300'000'000;
  int64_t keepalive_time_us = 60'000'000;
  int64_t keepalive_timeout_us = 20'000'000;
  int64_t min_ping_interval_us = 5'000'000;
};

struct GrpcOptions {
  std::string address = "0.0.0.0:8001";
  int64_t max_message_bytes = 64 << 20;
  int64_t memory_quota_bytes = 0;
  int64_t max_metadata_bytes = 8 << 10;
  int32_t max_streams = 1024;
  int64_t transfer_timeout_us = 60'000'000;
  int32_t max_rows = 1024;
  // What waits for a stalled caller is bounded by the tokens that its requests may generate.
  int64_t stream_stall_timeout_us = 30'000'000;
  // gRPC does not tell a stream that rests from a message that stopped half-way, which is kept in
  // memory.
  int64_t stream_idle_timeout_us = 600'000'000;
  std::string health_address{};
  ConnectionOptions connection;
};

// Calls that change the daemon rather than ask it for an answer: sluice.admin.v1, loading and
// unloading of models.
struct AdminOptions {
  std::string address = "127.0.0.1:8003";
  bool on_grpc_address = false;
  bool reflection = true;
  bool secured = false;
};

// TLS of gRPC. While the daemon runs, the files are read again when they change; if they are wrong
// then, the last good ones stay in use.
struct TlsOptions {
  std::string certificate_file{};
  std::string key_file{};
  std::string client_ca_file{};
};

// Which callers are served. Health and reflection are for everybody.
struct AuthOptions {
  std::string callers_file{};  // see security/callers_file.h
  bool anonymous = true;
};

// What one caller may ask for, where callers_file does not say otherwise.
struct RateOptions {
  double requests_per_second = 0;
  double requests_burst = 0;
  double tokens_per_second = 0;
  double tokens_burst = 0;
};

struct SecretsOptions {
  int64_t poll_interval_us = 10'000'000;
};

struct MetricsOptions {
  std::string address = "0.0.0.0:8002";
};

struct HttpOptions {
  bool status_page = true;
};

struct LogOptions {
  enum class Format { kText, kJson };
  std::string level = "info";
  Format format = Format::kText;
  double access_sample = 0.01;
  int32_t queue_records = 8192;
};
constexpr auto EnumNamesOf(LogOptions::Format) {
  using enum LogOptions::Format;
  return EnumNameTable<LogOptions::Format>({{kText, "text"}, {kJson, "json"}});
}

struct LifecycleOptions {
  int64_t drain_delay_us = 0;
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
