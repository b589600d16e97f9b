// Protobuf messages from and to gRPC's byte buffers.
#pragma once

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"

namespace sluice {

// InvalidArgument ("malformed") when the bytes are no such message. gRPC's own parsing in the typed
// callback API would answer UNIMPLEMENTED with an empty message instead.
absl::Status Parse(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* message);

// Internal when the message exceeds 2 GiB, Protobuf's limit.
absl::Status Serialize(const google::protobuf::MessageLite& message, grpc::ByteBuffer* bytes);

}  // namespace sluice
