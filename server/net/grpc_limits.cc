#include "server/net/grpc_limits.h"

#include <algorithm>
#include <climits>

#include "grpc/impl/codegen/compression_types.h"
#include "grpcpp/resource_quota.h"

namespace sluice {
namespace {

// A connection is closed after this many pings beyond the permitted ones. It is not 0, because a
// late packet makes the next ping look early.
constexpr int kPingStrikes = 2;

// The most bytes that gRPC reads from a connection at once. It is not the default of 4 MiB, because
// a read is processed completely although the connection is broken off, and may contain thousands
// of calls.
constexpr int kMostBytesOfRead = 64 << 10;

// Rounds up to milliseconds. Converts 0 to gRPC's value for "never".
int Milliseconds(int64_t us) {
  if (us == 0) return INT_MAX;
  return std::min<int64_t>((us + 999) / 1000, INT_MAX - 1);
}

void LimitMemory(const GrpcOptions& options, grpc::ServerBuilder* builder) {
  // A message limit does not limit memory, because data is buffered before its length is checked.
  grpc::ResourceQuota quota("sluice");
  if (options.memory_quota_bytes > 0) {
    quota.Resize(CountedQuota(options.memory_quota_bytes));
  }
  builder->SetResourceQuota(quota);
  builder->SetMaxReceiveMessageSize(options.max_message_bytes);
  builder->SetMaxSendMessageSize(options.max_message_bytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE,
                              static_cast<int>(options.max_metadata_bytes));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_streams);
  builder->AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kMostBytesOfRead);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
}

void LimitConnections(const ConnectionOptions& options, grpc::ServerBuilder* builder) {
  const auto set = [builder](const char* argument, int value) {
    builder->AddChannelArgument(argument, value);
  };
  set(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(options.handshake_timeout_us));
  set(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(options.idle_timeout_us));
  set(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(options.max_age_us));
  set(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, Milliseconds(options.age_grace_us));
  set(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_time_us));
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.keepalive_timeout_us));
  // Pings are also permitted without calls; otherwise gRPC counts any second ping within two hours
  // as a strike.
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      options.min_ping_interval_us == 0 ? 0 : Milliseconds(options.min_ping_interval_us));
  set(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kPingStrikes);
}

}  // namespace

void ApplyLimits(const GrpcOptions& options, grpc::ServerBuilder* builder) {
  LimitMemory(options, builder);
  LimitConnections(options.connection, builder);
  // Otherwise two daemons could share a port without an error.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace sluice
