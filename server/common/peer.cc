#include "server/common/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr size_t kNetworkBytes = 8;

}  // namespace

std::string PeerOfSocket(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    return absl::StrCat("ipv4:", text, ":", ntohs(v4->sin_port));
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
    inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], text, sizeof text);
    return absl::StrCat("ipv4:", text, ":", ntohs(v6->sin6_port));
  }
  inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  return absl::StrCat("ipv6:%5B", text, "%5D:", ntohs(v6->sin6_port));
}

std::string AddressOf(std::string_view peer) {
  constexpr std::string_view kV6 = "ipv6:";
  constexpr std::string_view kOpen = "%5B", kClose = "%5D";
  std::string_view host = peer.substr(0, peer.rfind(':'));
  if (!host.starts_with(kV6)) return std::string(host);
  std::string_view address = host.substr(kV6.size());
  if (address.starts_with(kOpen)) address.remove_prefix(kOpen.size());
  if (address.ends_with(kClose)) address.remove_suffix(kClose.size());
  address = address.substr(0, address.find('%'));  // without the scope, such as "%25eth0"
  in6_addr network{};
  if (inet_pton(AF_INET6, std::string(address).c_str(), &network) != 1) return std::string(host);
  std::fill(network.s6_addr + kNetworkBytes, std::end(network.s6_addr), 0);
  char text[INET6_ADDRSTRLEN];
  inet_ntop(AF_INET6, &network, text, sizeof text);
  return std::string(kV6).append(text).append("/64");
}

bool IsLocal(std::string_view peer) {
  return peer.starts_with("ipv4:127.") || peer.starts_with("ipv6:%5B::1%5D:") ||
         peer.starts_with("ipv6:[::1]:") || peer.starts_with("ipv6:%5B::ffff:127.") ||
         peer.starts_with("unix:");
}

}  // namespace sluice
