// Computes the cost of parsing a message in one pass over its bytes, before it is parsed.
//
// Two bytes of an empty message become two hundred in memory, so a few megabytes of them would take
// more memory than a daemon has. The pass allocates nothing and takes about a nanosecond per byte.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/zero_copy_stream.h"

namespace sluice {

struct WireLimits {
  int64_t parts = 1024;     // messages, texts, entries of maps and unknown fields
  int64_t bytes = 1 << 20;  // of the parsed message
};

struct WireCost {
  int64_t parts = 0;
  int64_t bytes = 0;  // an upper bound of Message::SpaceUsedLong of the parsed message
};

// The memory of one message without its texts and lists; no type of the protocol takes more.
inline constexpr int64_t kMessageBytes = 288;

// Returns the cost of parsing the bytes as a message of `type`. Returns InvalidArgument with the
// reason "malformed" if they are not such a message, and with the reason "request" if they exceed a
// limit. Some malformed messages pass, for example those with a text that is not UTF-8.
absl::StatusOr<WireCost> ScanWire(google::protobuf::io::ZeroCopyInputStream* bytes,
                                  const google::protobuf::Descriptor& type,
                                  const WireLimits& limits);

}  // namespace sluice
