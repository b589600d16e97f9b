// One pass over the bytes of a message that says what parsing it would take, before it is parsed.
//
// Two bytes of an empty message become two hundred in memory, so that a few megabytes of them take
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

// What one message takes in memory without the texts and lists in it; no type of the protocol has
// more.
inline constexpr int64_t kMessageBytes = 288;

// Returns what it takes to parse the bytes as a message of `type`. Returns InvalidArgument if they
// are not such a message, with the reason "malformed" (a message that passes may still be one, for
// example because a text is not UTF-8), and if they exceed a limit, with the reason "request".
absl::StatusOr<WireCost> ScanWire(google::protobuf::io::ZeroCopyInputStream* bytes,
                                  const google::protobuf::Descriptor& type,
                                  const WireLimits& limits);

}  // namespace sluice
