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
// A family that the machine lacks is left out. Returns Unavailable if any other address cannot be
// used, or if none is left, and InvalidArgument if HOST cannot be resolved. The errors have
// `address`, the reason and the remedy.
absl::StatusOr<ListeningSockets> ListenOn(const std::string& address);

}  // namespace sluice
