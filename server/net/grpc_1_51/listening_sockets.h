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

// Listens on every address of HOST in HOST:PORT. An IPv6 address is written in brackets; 0.0.0.0
// and [::] mean every address of both families. Port 0 picks a free port. The port is never shared.
// A family that the machine lacks is left out. Returns Unavailable, naming `address` and the
// reason, if any other address cannot be used, or if none is left. Returns InvalidArgument if HOST
// cannot be resolved.
absl::StatusOr<ListeningSockets> ListenOn(const std::string& address);

}  // namespace sluice
