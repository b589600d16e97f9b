#include "server/calls/wire.h"

#include <climits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/proto_buffer_writer.h"
#include "server/common/callback_times.h"
#include "server/common/status.h"

namespace sluice {
namespace {

absl::Status Malformed(const google::protobuf::Message& message) {
  return ReasonError(Reason::kMalformed, absl::StrCat("the request is not a well-formed ",
                                                      message.GetTypeName(), " message"));
}

// Scans `scanned` and parses `parsed`, two streams of the same bytes.
absl::Status ScanAndParse(google::protobuf::io::ZeroCopyInputStream* scanned,
                          google::protobuf::io::ZeroCopyInputStream* parsed,
                          const WireLimits& limits, Admit admit,
                          google::protobuf::Message* message) {
  const absl::StatusOr<WireCost> scan = ScanWire(scanned, *message->GetDescriptor(), limits);
  if (!scan.ok()) {
    return ReasonOf(scan.status()) == Reason::kMalformed ? Malformed(*message) : scan.status();
  }
  SLUICE_RETURN_IF_ERROR(admit(*scan));
  return message->ParseFromZeroCopyStream(parsed) ? absl::OkStatus() : Malformed(*message);
}

}  // namespace

absl::Status Parse(const grpc::ByteBuffer& bytes, google::protobuf::Message* message,
                   const WireLimits& limits, Admit admit) {
  const auto length = static_cast<int64_t>(bytes.Length());
  if (length > limits.bytes) {
    return ReasonError(Reason::kRequest, absl::StrCat("the message has ", length,
                                                      " bytes; the limit is ", limits.bytes));
  }
  CallbackTimes::CountBytes(length);
  grpc::Slice slice;
  if (bytes.TrySingleSlice(&slice).ok() && slice.size() <= INT_MAX) {
    const int size = static_cast<int>(slice.size());
    google::protobuf::io::ArrayInputStream scanned(slice.begin(), size);
    google::protobuf::io::ArrayInputStream parsed(slice.begin(), size);
    return ScanAndParse(&scanned, &parsed, limits, admit, message);
  }
  // Copies only references. Each reader needs a mutable buffer.
  grpc::ByteBuffer first = bytes;
  grpc::ByteBuffer second = bytes;
  grpc::ProtoBufferReader scanned(&first);
  grpc::ProtoBufferReader parsed(&second);
  if (!scanned.status().ok() || !parsed.status().ok()) return Malformed(*message);
  return ScanAndParse(&scanned, &parsed, limits, admit, message);
}

absl::Status Serialize(const google::protobuf::MessageLite& message, grpc::ByteBuffer* bytes) {
  const size_t size = message.ByteSizeLong();
  if (size > INT_MAX) {
    return absl::InternalError(absl::StrCat("the response of ", size, " bytes exceeds 2 GiB"));
  }
  grpc::Slice slice(size);
  // The slice has no other reference, so it may be written to.
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  grpc::ByteBuffer written(&slice, 1);
  bytes->Swap(&written);
  return absl::OkStatus();
}

}  // namespace sluice
