#include "server/net/grpc_1_51/listening_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice {
namespace {

// The number of connections that may wait; the kernel lowers it to net.core.somaxconn.
constexpr int kBacklog = 4096;

using Resolved = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

absl::StatusOr<Resolved> Resolve(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return absl::InvalidArgumentError(gai_strerror(error));
  return Resolved(found, &freeaddrinfo);
}

bool SetOption(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

void SetPort(int port, sockaddr_storage* address) {
  const in_port_t number = htons(static_cast<in_port_t>(port));
  if (address->ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = number;
  } else {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = number;
  }
}

int PortOf(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&bound)->sin_port
                                          : reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port);
}

// Returns no descriptor, with errno set, if the address cannot be used. If `both_families`, an IPv6
// wildcard accepts IPv4 connections too.
Descriptor ListenOne(const addrinfo& wanted, int port, bool both_families) {
  sockaddr_storage address{};
  std::memcpy(&address, wanted.ai_addr, wanted.ai_addrlen);
  if (port != 0) SetPort(port, &address);
  Descriptor fd(socket(wanted.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return {};
  // SO_REUSEADDR: a restart need not wait for the connections of the previous run; two listeners
  // still cannot share a port. TCP_NODELAY: inherited by connections; small messages are sent at
  // once.
  if (!SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1) ||
      !SetOption(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1) ||
      (wanted.ai_family == AF_INET6 &&
       !SetOption(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, both_families ? 0 : 1)) ||
      bind(fd.get(), reinterpret_cast<sockaddr*>(&address), wanted.ai_addrlen) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return {};
  }
  return fd;
}

// Returns whether the address cannot be used because the machine lacks its family; then the other
// family is enough.
bool IsMissingFamily(int error) { return error == EAFNOSUPPORT || error == EADDRNOTAVAIL; }

// Returns no sockets, with errno set, if no address has a family of this machine, or if one of the
// addresses cannot be used for another reason.
ListeningSockets ListenAll(const addrinfo* wanted, bool both_families) {
  ListeningSockets result;
  for (; wanted != nullptr; wanted = wanted->ai_next) {
    Descriptor fd = ListenOne(*wanted, result.port, both_families);
    if (fd.get() < 0) {
      if (IsMissingFamily(errno)) continue;
      return {};
    }
    result.port = PortOf(fd.get());
    result.sockets.push_back(std::move(fd));
  }
  return result;
}

const char* RemedyOf(int error) {
  switch (error) {
    case EADDRINUSE:
      return "choose another port, or end the process that uses this one";
    case EACCES:
      return "choose a port above 1023, or allow the daemon to use this one";
    default:
      return "choose an address of this machine, or 0.0.0.0 for all of them";
  }
}

absl::Status CannotListen(const std::string& address, absl::string_view reason, int error) {
  const std::string message =
      absl::StrCat("cannot listen on ", address, ": ", reason, "; ", RemedyOf(error));
  return error == 0 ? absl::InvalidArgumentError(message) : absl::UnavailableError(message);
}

}  // namespace

absl::StatusOr<ListeningSockets> ListenOn(const std::string& address) {
  const size_t colon = std::min(address.rfind(':'), address.size());
  std::string host = address.substr(0, colon);
  const std::string port = address.substr(std::min(colon + 1, address.size()));
  int number = 0;
  if (!absl::SimpleAtoi(port, &number) || number < 0 || number > UINT16_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(address, " is not HOST:PORT"));
  }
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  const bool wildcard = host == "0.0.0.0" || host == "::";
  const char* const tries[] = {wildcard ? "::" : host.c_str(), "0.0.0.0"};
  for (const char* each : tries) {
    const absl::StatusOr<Resolved> wanted = Resolve(each, port);
    if (!wanted.ok()) return CannotListen(address, wanted.status().message(), /*error=*/0);
    ListeningSockets result = ListenAll(wanted->get(), wildcard);
    if (!result.sockets.empty()) return result;
    if (!wildcard || !IsMissingFamily(errno)) break;
  }
  const int error = errno;
  return CannotListen(address, strerror(error), error);
}

}  // namespace sluice
