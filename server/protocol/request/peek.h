// The fields of a request that decide whether a full queue refuses it, read from the message's
// bytes without parsing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

struct RequestPeek {
  std::string_view model_name;  // both refer to the message
  std::string_view model_version;
};

// Returns the fields of a ModelInferRequest. Returns nothing if the message has a parameter that
// affects admission (a priority or a timeout), if the first fields of the message are not enough to
// decide this, or if the bytes are not a message. Allocates nothing, and reads only the lengths of
// tensors.
std::optional<RequestPeek> PeekAtRequest(std::string_view message);

// Returns the id of a ModelInferRequest from the first bytes of the message. Returns an empty text
// if these have no id, or an id that is not UTF-8 or is longer than
// kMostPeekedIdBytes.
inline constexpr size_t kMostPeekedIdBytes = 1024;
std::string PeekAtId(std::string_view first_bytes);

}  // namespace sluice
