// The fields of a request by which a queue that is full refuses it, read from the message's bytes
// without parsing them.
#pragma once

#include <optional>
#include <string_view>

namespace sluice {

struct RequestPeek {
  std::string_view model_name;  // both refer to the message
  std::string_view model_version;
};

// Returns the fields of a ModelInferRequest. Returns nothing if the message has a parameter that
// decides about its admission, a priority or a timeout, if that cannot be told within the first
// fields of a message, or if the bytes are not a message. Allocates nothing, and reads no more of
// the tensors than their lengths.
std::optional<RequestPeek> PeekAtRequest(std::string_view message);

}  // namespace sluice
