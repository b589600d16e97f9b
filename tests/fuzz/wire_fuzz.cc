// Scans message bytes from the network and compares the scan with Protobuf's parser: the parsed
// message never takes more memory than the scan computes.
#include <memory>

#include "absl/strings/match.h"
#include "base/reason.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/stubs/logging.h"
#include "proto/inference.pb.h"
#include "server/calls/wire_scan.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

constexpr WireLimits kLimits = {.parts = 1024, .bytes = 1 << 20};

// Reads in pieces of `block` bytes, like the slices of gRPC.
absl::StatusOr<WireCost> Scan(std::string_view bytes, int block, const WireLimits& limits,
                              const google::protobuf::Message& type) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()),
                                                block);
  return ScanWire(&stream, *type.GetDescriptor(), limits);
}

// Returns whether the scan accepted the message.
template <typename Message>
bool Check(std::string_view bytes) {
  Message message;
  const absl::StatusOr<WireCost> cost = Scan(bytes, -1, kLimits, message);
  const absl::StatusOr<WireCost> pieces = Scan(bytes, 7, kLimits, message);
  SLUICE_CHECK(cost.status() == pieces.status());
  if (cost.ok()) {
    SLUICE_CHECK(cost->parts == pieces->parts && cost->bytes == pieces->bytes);
    SLUICE_CHECK(cost->parts <= kLimits.parts && cost->bytes <= kLimits.bytes);
  } else {
    fuzz::CheckRefusal(cost.status());
    if (ReasonOf(cost.status()) != Reason::kMalformed) return false;  // not parsed
  }
  const bool parsed = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  // A group is well-formed Protobuf, but no type of the protocol has a group.
  if (!cost.ok()) SLUICE_CHECK(!parsed || absl::StrContains(cost.status().message(), "group"));
  if (cost.ok()) SLUICE_CHECK(static_cast<int64_t>(message.SpaceUsedLong()) <= cost->bytes);
  return cost.ok();
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = sluice::fuzz::AsText(data, size);
  const bool infers = sluice::Check<inference::ModelInferRequest>(bytes);
  const bool loads = sluice::Check<inference::RepositoryModelLoadRequest>(bytes);
  return infers || loads;
}
