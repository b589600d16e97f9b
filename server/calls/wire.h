// Conversion between Protobuf messages and the byte buffers of gRPC.
#pragma once

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"

namespace sluice {

// Parses `bytes` into `message`. Returns InvalidArgument ("malformed") if the bytes are not such a
// message; the parsing in gRPC's typed callback API would answer UNIMPLEMENTED with an empty text
// instead.
absl::Status Parse(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* message);

// Serialises `message` into `bytes`. Returns Internal if the message exceeds 2 GiB, Protobuf's
// limit.
absl::Status Serialize(const google::protobuf::MessageLite& message, grpc::ByteBuffer* bytes);

}  // namespace sluice
