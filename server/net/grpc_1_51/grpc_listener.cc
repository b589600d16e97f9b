#include "server/net/grpc_1_51/grpc_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/fault_injection.h"
#include "base/status_macros.h"
#include "server/common/peer.h"
#include "server/net/grpc_1_51/version.h"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kRetry{100};
// The minimum time between two passes that forget closed connections. A pass takes about a
// microsecond per connection, too long to repeat for every new connection in a flood.
constexpr std::chrono::milliseconds kForgetInterval{50};
// Descriptors for everything except connections of inference: connections for HTTP (256), operators
// (256) and probes (64); logs, model files, epoll and files that libraries open.
constexpr int64_t kOwnDescriptors = 256 + 256 + 64 + 256;
// One of so many descriptors is for connections of inference, however few there are.
constexpr int64_t kLeastShare = 8;

int Accept(int listener) {
  if (FaultsOn() &&
      !InjectFault(FaultPoint::kAccept, [](std::string_view) { return false; }).ok()) {
    errno = EIO;
    return -1;
  }
  return accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

// Returns the inode of a descriptor, or 0 if it is closed.
ino_t InodeOf(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

// Discards the data that the kernel has received. After a shutdown it would otherwise still be
// read: megabytes, or ten thousands of calls.
void Discard(int fd) {
  constexpr int kAtOnce = 1 << 20;
  // TCP discards the bytes without copying them.
  while (recv(fd, nullptr, kAtOnce, MSG_TRUNC | MSG_DONTWAIT) > 0) {
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Bind(
    const std::string& address, const Limits& limits,
    FailedHandshakes::OnFailed on_failed_handshake) {
  SLUICE_ASSIGN_OR_RETURN(ListeningSockets sockets, ListenOn(address));
  Descriptor stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (stop.get() < 0) return absl::UnavailableError("no file descriptor left for eventfd");
  return std::unique_ptr<GrpcListener>(new GrpcListener(std::move(sockets), std::move(stop), limits,
                                                        std::move(on_failed_handshake)));
}

void GrpcListener::Start(std::unique_ptr<Acceptor> acceptor) {
  acceptor_ = std::move(acceptor);
  thread_ = std::thread([this] { Run(); });
}

void GrpcListener::Stop() {
  if (thread_.joinable()) {
    stopping_ = true;
    SLUICE_CHECK(eventfd_write(stop_.get(), 1) == 0);
    thread_.join();
  }
  sockets_.sockets.clear();
}

void GrpcListener::Run() {
  std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}};
  for (const Descriptor& socket : sockets_.sockets) polled.push_back({socket.get(), POLLIN, 0});
  bool resting = false;  // after a failure, to avoid spinning on a socket that stays readable
  for (;;) {
    const nfds_t count = resting ? 1 : polled.size();
    const int ready = poll(polled.data(), count, resting ? kRetry.count() : -1);
    resting = false;
    if (ready < 0) continue;  // interrupted by a signal
    if (polled[0].revents != 0) return;
    for (size_t i = 1; i < count; ++i) {
      if (polled[i].revents != 0 && !AcceptAll(polled[i].fd)) resting = true;
    }
  }
}

bool GrpcListener::AcceptAll(int listener) {
  while (!stopping_) {
    Descriptor connection(Accept(listener));
    if (connection.get() >= 0) {
      Take(listener, std::move(connection));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return true;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      MutexLock lock(&mu_);
      ++stats_.failed_accepts;
      return false;
    }
  }
  return true;
}

void GrpcListener::Take(int listener, Descriptor connection) {
  if (refusing_.load(std::memory_order_relaxed)) {
    MutexLock lock(&mu_);
    ++stats_.refused_for_memory;
    return;
  }
  const int fd = connection.get();
  const std::string peer = PeerOfSocket(fd);
  const std::string host = AddressOf(peer);
  {
    MutexLock lock(&mu_);
    Erase(fd);  // remove a closed connection that had this descriptor
    if (!HasRoomFor(host)) {
      ++stats_.refused;
      return;
    }
    ++by_host_[host];
    by_peer_[peer] = fd;
    connections_[fd] = {InodeOf(fd), peer};
  }
  const FailedHandshakes::Scope scope(&handshakes_, peer);
  Acceptor::NewConnectionParameters parameters;
  parameters.listener_fd = listener;
  parameters.fd = connection.Release();
  acceptor_->HandleNewConnection(&parameters);
}

bool GrpcListener::HasRoomFor(const std::string& host) {
  const auto has_room = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto own = by_host_.find(host);
    return std::ssize(connections_) < limits_.max_connections &&
           (own == by_host_.end() || own->second < limits_.max_per_host);
  };
  if (has_room()) return true;
  const MonoTime now = Clock::Real()->Now();
  if (now - forgot_ < kForgetInterval) return false;
  forgot_ = now;
  Forget();
  return has_room();
}

void GrpcListener::Forget() const {
  std::vector<int> closed;
  for (const auto& [fd, connection] : connections_) {
    if (InodeOf(fd) != connection.inode) closed.push_back(fd);
  }
  for (const int fd : closed) Erase(fd);
}

void GrpcListener::Erase(int fd) const {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  const std::string& peer = found->second.peer;
  const auto own = by_peer_.find(peer);
  if (own != by_peer_.end() && own->second == fd) by_peer_.erase(own);
  const auto host = by_host_.find(AddressOf(peer));
  if (--host->second == 0) by_host_.erase(host);
  connections_.erase(found);
}

void GrpcListener::Close(const std::string& peer) {
  MutexLock lock(&mu_);
  const int fd = FindOpen(peer);
  if (fd >= 0) BreakOff(fd);
}

void GrpcListener::CloseAddressOf(const std::string& peer) {
  MutexLock lock(&mu_);
  if (FindOpen(peer) < 0) return;
  const std::string address = AddressOf(peer);
  for (const auto& [other, fd] : by_peer_) {
    if (AddressOf(other) == address && FindOpen(other) >= 0) BreakOff(fd);
  }
}

int GrpcListener::FindOpen(const std::string& peer) {
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return -1;
  const Connection& connection = connections_[found->second];
  const bool is_open = !connection.broken_off && InodeOf(found->second) == connection.inode;
  return is_open ? found->second : -1;
}

void GrpcListener::BreakOff(int fd) {
  connections_[fd].broken_off = true;
  shutdown(fd, SHUT_RDWR);
  Discard(fd);
  ++stats_.broken_off;
}

ListenerStats GrpcListener::Stats() const {
  MutexLock lock(&mu_);
  Forget();
  ListenerStats stats = stats_;
  stats.open = std::ssize(connections_);
  stats.failed_handshakes = handshakes_.counts();
  return stats;
}

int64_t ReserveDescriptors(int64_t connections) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return connections;
  const rlim_t wanted = static_cast<rlim_t>(connections + kOwnDescriptors);
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = std::min(wanted, limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= wanted) return connections;
  const auto all = static_cast<int64_t>(limit.rlim_cur);
  return std::max<int64_t>(all - kOwnDescriptors, all / kLeastShare);
}

}  // namespace sluice
