// Conversion between Protobuf messages and the byte buffers of gRPC.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/calls/wire_scan.h"

namespace sluice {

// Decides whether to parse a message of this cost, before anything is allocated.
using Admit = absl::FunctionRef<absl::Status(const WireCost&)>;
inline absl::Status AdmitAll(const WireCost&) { return absl::OkStatus(); }

// Parses `bytes` into `message`. Returns InvalidArgument ("malformed") if the bytes are not such a
// message; gRPC's typed callback API would answer UNIMPLEMENTED with an empty text. Returns
// InvalidArgument ("request"), before anything is allocated, if the message exceeds `limits` when
// parsed or in bytes. The default limits suit messages without tensors. Also returns the errors of
// `admit`.
absl::Status Parse(const grpc::ByteBuffer& bytes, google::protobuf::Message* message,
                   const WireLimits& limits = {}, Admit admit = AdmitAll);

// Serialises `message` into `bytes`. Returns Internal if the message exceeds 2 GiB, Protobuf's
// limit.
absl::Status Serialize(const google::protobuf::MessageLite& message, grpc::ByteBuffer* bytes);

}  // namespace sluice
