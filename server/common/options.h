// The options of the server. server/common/option_specs.cc has their effects, units and ranges. A
// name ends in its unit, or in the counted noun.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/enum_names.h"
#include "engine/ladder_choice.h"
#include "engine/model/adapter.h"
#include "engine/model/kv_type.h"
#include "engine/model/quantization.h"
#include "engine/model/speculation.h"

namespace sluice {

// A model to serve. Each pair of name and version is unique.
struct ModelSpec {
  std::string name;
  std::string path;
  int64_t version = 1;
  Quantization quantization = Quantization::kNone;
  bool quantize_head = false;
  int32_t quantization_group = kQuantizationGroup;
  KvType kv_dtype = KvType::kF32;
  std::string adapters{};
  int64_t adapter_memory_bytes = kAdapterMemory;
  SpeculationOptions speculation{};
  LadderChoice ladder{};

  bool operator==(const ModelSpec&) const = default;
};

// The connections to the gRPC service. All peers share the daemon's resources, so a peer may not
// keep a connection that it does not use.
struct ConnectionOptions {
  int32_t max = 10'000;
  int32_t max_per_address = 0;
  int64_t handshake_timeout_us = 10'000'000;
  int64_t idle_timeout_us = 600'000'000;
  int64_t max_age_us = 3'600'000'000;
  int64_t age_grace_us = 300'000'000;
  int64_t keepalive_time_us = 60'000'000;
  int64_t keepalive_timeout_us = 20'000'000;
  int64_t min_ping_interval_us = 5'000'000;
};

struct GrpcOptions {
  std::string address = "0.0.0.0:8001";
  int64_t max_message_bytes = 0;
  int64_t memory_quota_bytes = 0;
  int64_t max_unread_bytes = 0;
  int64_t max_metadata_bytes = 8 << 10;
  int32_t max_streams = 1024;
  int64_t max_calls = 0;
  int64_t transfer_timeout_us = 60'000'000;
  int32_t max_rows = 1024;
  // The results that wait for a stalled caller are limited by the tokens that its requests may
  // generate.
  int64_t stream_stall_timeout_us = 30'000'000;
  // gRPC does not distinguish an idle stream from a message that stopped half-way and is kept in
  // memory.
  int64_t stream_idle_timeout_us = 600'000'000;
  std::string health_address{};
  bool reflection = false;
  ConnectionOptions connection;
};

// Returns the part of memory_quota_bytes that gRPC counts; the rest is allocation overhead.
inline int64_t CountedQuota(int64_t quota_bytes) { return quota_bytes / 100 * 80; }

// The calls that change the daemon: all calls of sluice.admin.v1, and loading and unloading models.
struct AdminOptions {
  std::string address = "127.0.0.1:8003";
  bool on_grpc_address = false;
  bool secured = false;
  bool open_to_network = false;
};

// TLS of the gRPC servers. The files are read again when they change; if they are invalid then, the
// last valid ones stay in use.
struct TlsOptions {
  std::string certificate_file{};
  std::string key_file{};
  std::string client_ca_file{};
};

// The callers that are served. Health and reflection need no credential.
struct AuthOptions {
  std::string callers_file{};  // see security/callers_file.h
  bool anonymous = true;
};

// The default limits of each caller; callers_file can replace them for one caller.
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
  std::string host = "localhost";
};

struct LogOptions {
  enum class Format { kText, kJson };
  std::string level = "info";
  Format format = Format::kText;
  double access_sample = 0.01;
};
constexpr auto EnumNamesOf(LogOptions::Format) {
  using enum LogOptions::Format;
  return EnumNameTable<LogOptions::Format>({{kText, "text"}, {kJson, "json"}});
}

struct LifecycleOptions {
  int64_t drain_delay_us = 1'000'000;
  int64_t drain_timeout_us = 30'000'000;
  bool ready_without_models = false;
};

// The memory of the process as a whole.
struct MemoryOptions {
  int64_t limit_bytes = 0;
  bool copy_weights = false;
};

struct ServerOptions {
  MemoryOptions memory;
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
