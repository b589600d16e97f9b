// Protobuf messages from and to gRPC's byte buffers.
#pragma once

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"

namespace sluice {

// Returns InvalidArgument ("malformed") if the bytes are not such a message. gRPC's own parsing in
// the typed callback API would answer UNIMPLEMENTED with an empty message instead.
absl::Status Parse(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* message);

// Returns Internal if the message exceeds 2 GiB, Protobuf's limit.
absl::Status Serialize(const google::protobuf::MessageLite& message, grpc::ByteBuffer* bytes);

}  // namespace sluice
