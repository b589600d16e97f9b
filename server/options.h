// Options of the server edge. Filled by config/, which enforces the ranges given here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct GrpcOptions {
  // HOST:PORT of the gRPC service; port 0 picks a free one. The port is never shared.
  std::string address = "0.0.0.0:8001";
  // Largest message in and out; larger ones are RESOURCE_EXHAUSTED. [1 KiB, 2^31 - 1].
  int64_t max_message_bytes = 64 << 20;
  // Memory that gRPC may use for all calls together; 0: a quarter of the cgroup's or the machine's
  // memory. At the limit calls are refused or slowed down, the daemon keeps its size.
  int64_t memory_quota_bytes = 0;
  // Rows of one request. [1, 65536].
  int32_t max_rows = 1024;
  // A stream whose caller does not take a response for this long is given up: its requests are
  // cancelled and it ends with RESOURCE_EXHAUSTED; after as long again it is cut off. What waits is
  // bounded by the tokens that its requests may generate. [100 ms, 1 h].
  int64_t stream_stall_timeout_us = 30'000'000;
  // Offer server reflection.
  bool reflection = false;
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

// What clients are told of the engine's options, names as the configuration has them.
struct EngineTraits {
  std::string policy;    // engine.batch.policy
  std::string strategy;  // engine.ladder.strategy
  int64_t memory_limit_bytes = 0;
  int64_t max_queue_delay_us = 0;
};

struct ServerOptions {
  GrpcOptions grpc;
  MetricsOptions metrics;
  HttpOptions http;
  LogOptions log;
  LifecycleOptions lifecycle;
};

}  // namespace sluice
