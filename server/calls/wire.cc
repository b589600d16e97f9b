#include "server/calls/wire.h"

#include <climits>

#include "absl/strings/str_cat.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/proto_buffer_writer.h"
#include "server/common/status.h"

namespace sluice {
namespace {

bool ParseSlices(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* message) {
  grpc::Slice slice;
  if (bytes.TrySingleSlice(&slice).ok()) {
    if (slice.size() > INT_MAX) return false;
    return message->ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
  }
  grpc::ByteBuffer copy = bytes;  // copies references only: the reader needs a mutable buffer
  grpc::ProtoBufferReader reader(&copy);
  return reader.status().ok() && message->ParseFromZeroCopyStream(&reader);
}

}  // namespace

absl::Status Parse(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* message) {
  if (ParseSlices(bytes, message)) return absl::OkStatus();
  return WithReason(absl::InvalidArgumentError(absl::StrCat("the request is not a well-formed ",
                                                            message->GetTypeName(), " message")),
                    "malformed");
}

absl::Status Serialize(const google::protobuf::MessageLite& message, grpc::ByteBuffer* bytes) {
  const size_t size = message.ByteSizeLong();
  if (size > INT_MAX) {
    return absl::InternalError(absl::StrCat("the response of ", size, " bytes exceeds 2 GiB"));
  }
  grpc::Slice slice(size);
  // A slice to which nothing else refers may be written to.
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  grpc::ByteBuffer written(&slice, 1);
  bytes->Swap(&written);
  return absl::OkStatus();
}

}  // namespace sluice
