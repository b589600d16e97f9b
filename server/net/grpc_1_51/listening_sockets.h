// Sockets that listen on an address.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace sluice {

struct ListeningSockets {
  std::vector<Descriptor> sockets;  // non-blocking; at least one
  int port = 0;
};

// Listens on all that HOST of HOST:PORT stands for; an IPv6 address stands in brackets. 0.0.0.0 and
// [::] are every address of both families. Port 0 picks a free one. The port is never shared.
// Unavailable when one of the addresses can't be had, naming `address` and why; InvalidArgument
// when HOST means nothing here.
absl::StatusOr<ListeningSockets> ListenOn(const std::string& address);

}  // namespace sluice
