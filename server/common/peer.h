// The remote ends of connections.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Returns the remote end of a socket in gRPC's format, or nothing if the socket is not connected.
std::string PeerOfSocket(int fd);

// Returns the address that counts as one peer, for a remote end in gRPC's format:
// "ipv4:192.0.2.1:54321" gives "ipv4:192.0.2.1". An IPv6 address gives its network of 64 bits,
// because a host usually owns all addresses of one: "ipv6:%5B2001:db8::1%5D:54321" gives
// "ipv6:2001:db8::/64". An end in another format, such as a Unix socket, gives all text before its
// last colon.
std::string AddressOf(std::string_view peer);

// Returns whether the remote end is a process of this machine: its address is a loopback address,
// or it is a Unix socket.
bool IsLocal(std::string_view peer);

}  // namespace sluice
