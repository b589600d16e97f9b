#include "client/http_get.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace sluice::client {
namespace {

constexpr size_t kMaxResponseBytes = 16 << 20;

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

absl::Status Failed(const std::string& address, const std::string& what) {
  return absl::UnavailableError(absl::StrCat(address, ": ", what));
}

// Limits connecting, and each read and write, to `timeout`.
void SetTimeouts(int descriptor, absl::Duration timeout) {
  const timeval limit = absl::ToTimeval(timeout);
  setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

absl::StatusOr<std::unique_ptr<Socket>> Connect(const std::string& address,
                                                absl::Duration timeout) {
  const size_t colon = address.rfind(':');
  if (colon == address.npos) return Failed(address, "is not HOST:PORT");
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
  if (error != 0) return Failed(address, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  absl::Status last = Failed(address, "has no address");
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    auto connection = std::make_unique<Socket>(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connection->get() < 0) continue;
    SetTimeouts(connection->get(), timeout);
    if (connect(connection->get(), a->ai_addr, a->ai_addrlen) == 0) return connection;
    last = Failed(address, strerror(errno));
  }
  return last;
}

absl::Status SendAll(int descriptor, absl::string_view data, const std::string& address) {
  while (!data.empty()) {
    const ssize_t sent = send(descriptor, data.data(), data.size(), MSG_NOSIGNAL);
    if (sent <= 0) return Failed(address, strerror(errno));
    data.remove_prefix(sent);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> HttpGet(const std::string& address, const std::string& path,
                                    absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Socket> connection, Connect(address, timeout));
  const int descriptor = connection->get();
  // An HTTP/1.0 request gets an unchunked body that ends when the connection closes.
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: ", address, "\r\nConnection: close\r\n\r\n");
  SLUICE_RETURN_IF_ERROR(SendAll(descriptor, request, address));
  std::string response;
  char buffer[16384];
  while (true) {
    const ssize_t received = recv(descriptor, buffer, sizeof buffer, 0);
    if (received == 0) break;
    if (received < 0) return Failed(address, strerror(errno));
    response.append(buffer, received);
    if (response.size() > kMaxResponseBytes) return Failed(address, "answers with over 16 MiB");
    if (absl::Now() > deadline) return Failed(address, "takes too long");
  }
  return HttpBody(response);
}

absl::StatusOr<std::string> HttpBody(const std::string& response) {
  const size_t head_end = response.find("\r\n\r\n");
  const bool http = absl::StartsWith(response, "HTTP/1.");
  if (!http || head_end == response.npos) {
    return absl::FailedPreconditionError("the answer is not HTTP");
  }
  const std::string status_line = response.substr(0, response.find("\r\n"));
  const std::vector<std::string> words = absl::StrSplit(status_line, absl::MaxSplits(' ', 2));
  if (words.size() < 2 || words[1] != "200") {
    return absl::FailedPreconditionError(absl::StrCat("the answer is ", status_line.substr(0, 80)));
  }
  return response.substr(head_end + 4);
}

}  // namespace sluice::client
