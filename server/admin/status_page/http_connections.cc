#include "server/admin/status_page/http_connections.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "server/common/peer.h"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kRetry{100};
constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kHeadEnd = "\r\n\r\n";

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Bad Request";
  }
}

std::string_view TakeUntil(std::string_view separator, std::string_view* rest) {
  const size_t at = rest->find(separator);
  const std::string_view taken = rest->substr(0, at);
  rest->remove_prefix(at == std::string_view::npos ? rest->size() : at + separator.size());
  return taken;
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

std::optional<HttpRequest> ParseHttpHead(std::string_view head) {
  std::string_view line = TakeUntil(kLineEnd, &head);
  HttpRequest request;
  request.method = TakeUntil(" ", &line);
  std::string_view target = TakeUntil(" ", &line);
  request.path = TakeUntil("?", &target);
  if (request.method.empty() || !request.path.starts_with('/')) return std::nullopt;
  if (line != "HTTP/1.1" && line != "HTTP/1.0") return std::nullopt;
  while (!head.empty()) {
    std::string_view value = TakeUntil(kLineEnd, &head);
    const bool has_colon = value.find(':') != std::string_view::npos;
    const std::string_view name = TakeUntil(":", &value);
    if (!has_colon || name.empty()) return std::nullopt;
    if (!absl::EqualsIgnoreCase(absl::string_view(name.data(), name.size()), "host")) continue;
    if (request.host) return std::nullopt;
    request.host =
        std::string(absl::StripAsciiWhitespace(absl::string_view(value.data(), value.size())));
  }
  return request;
}

absl::StatusOr<std::unique_ptr<HttpConnections>> HttpConnections::Start(const std::string& address,
                                                                        const Limits& limits,
                                                                        Handlers handlers) {
  SLUICE_ASSIGN_OR_RETURN(ListeningSockets sockets, ListenOn(address));
  Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0) return absl::UnavailableError("no file descriptor left for eventfd");
  return std::unique_ptr<HttpConnections>(
      new HttpConnections(std::move(sockets), std::move(wake), limits, std::move(handlers)));
}

HttpConnections::HttpConnections(ListeningSockets sockets, Descriptor wake, const Limits& limits,
                                 Handlers handlers)
    : sockets_(std::move(sockets)),
      wake_(std::move(wake)),
      limits_(limits),
      handlers_(std::move(handlers)),
      places_(limits.late_answers),
      late_(std::make_unique<JobQueue>(limits.late_answers)),
      thread_([this] { Run(); }) {}

HttpConnections::~HttpConnections() {
  stopping_ = true;
  Wake();
  thread_.join();
  late_.reset();
}

void HttpConnections::Wake() const { SLUICE_CHECK(eventfd_write(wake_.get(), 1) == 0); }

void HttpConnections::Run() {
  while (!stopping_) {
    Poll();
    TakeLateAnswers();
    CloseExpired();
  }
  connections_.clear();
  sockets_.sockets.clear();
}

// Waits for events and continues the connections that have some.
void HttpConnections::Poll() {
  std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
  const MonoTime now = Clock::Real()->Now();
  const bool accepts = now >= accepts_from_;
  MonoTime next = accepts ? MonoTime::max() : accepts_from_;
  for (const Descriptor& socket : sockets_.sockets) {
    if (accepts) polled.push_back({socket.get(), POLLIN, 0});
  }
  const size_t first = polled.size();
  std::vector<Id> ids;
  for (const auto& [id, connection] : connections_) {
    next = std::min(next, connection.until);
    const bool writes = connection.state == Connection::State::kWriting;
    const bool waits = connection.state == Connection::State::kWaiting;
    polled.push_back({connection.fd.get(),
                      static_cast<short>(writes  ? POLLOUT
                                         : waits ? 0
                                                 : POLLIN),
                      0});
    ids.push_back(id);
  }
  int timeout = -1;
  if (next != MonoTime::max()) {
    const nanoseconds left = next - now;
    timeout = static_cast<int>(
        std::chrono::ceil<std::chrono::milliseconds>(std::max(left, nanoseconds(0))).count());
  }
  if (poll(polled.data(), polled.size(), timeout) <= 0) return;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (polled[first + i].revents == 0) continue;
    const auto connection = connections_.find(ids[i]);
    if (!Advance(ids[i], &connection->second)) connections_.erase(connection);
  }
  for (size_t i = 1; i < first; ++i) {
    if (polled[i].revents != 0) AcceptFrom(polled[i].fd);
  }
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
}

// Accepts one connection at a time, so that earlier requests are answered in between.
void HttpConnections::AcceptFrom(int listener) {
  Descriptor accepted(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (accepted.get() < 0) {
    // Without a descriptor the socket stays readable, so MakeRoom closes a connection.
    if (WouldBlock() || errno == ECONNABORTED || MakeRoom()) return;
    accepts_from_ = Clock::Real()->Now() + kRetry;
    return;
  }
  if (connections_.size() >= limits_.connections) MakeRoom();
  const MonoTime until = Clock::Real()->Now() + limits_.request_time;
  const auto [added, unused] =
      connections_.emplace(next_id_++, Connection{.fd = std::move(accepted), .until = until});
  if (!Advance(added->first, &added->second)) connections_.erase(added);
}

bool HttpConnections::MakeRoom() {
  auto oldest = std::find_if(connections_.begin(), connections_.end(), [](const auto& each) {
    return each.second.state == Connection::State::kReading ||
           each.second.state == Connection::State::kClosing;
  });
  if (oldest == connections_.end()) oldest = connections_.begin();
  if (oldest == connections_.end()) return false;
  connections_.erase(oldest);
  return true;
}

void HttpConnections::CloseExpired() {
  const MonoTime now = Clock::Real()->Now();
  std::erase_if(connections_, [now](const auto& each) { return each.second.until <= now; });
}

void HttpConnections::TakeLateAnswers() {
  std::vector<LateAnswer> answers;
  {
    MutexLock lock(&mu_);
    answers.swap(answers_);
  }
  for (const LateAnswer& answer : answers) {
    const auto connection = connections_.find(answer.id);
    if (connection == connections_.end()) continue;
    if (!Send(answer.response, answer.head_alone, &connection->second)) {
      connections_.erase(connection);
    }
  }
}

bool HttpConnections::Advance(Id id, Connection* connection) {
  switch (connection->state) {
    case Connection::State::kReading:
      return Read(id, connection);
    case Connection::State::kWriting:
      return Write(connection);
    case Connection::State::kWaiting:
      return false;  // only an error is reported
    case Connection::State::kClosing:
      break;
  }
  char dropped[4096];
  const ssize_t count = recv(connection->fd.get(), dropped, sizeof dropped, 0);
  return count > 0 || (count < 0 && WouldBlock());
}

bool HttpConnections::Read(Id id, Connection* connection) {
  char buffer[4096];
  const ssize_t count = recv(connection->fd.get(), buffer, sizeof buffer, 0);
  if (count <= 0) return count < 0 && WouldBlock();
  std::string& bytes = connection->bytes;
  const size_t before = bytes.size();
  bytes.append(buffer, count);
  const size_t end = bytes.find(kHeadEnd, before - std::min(before, kHeadEnd.size() - 1));
  if (end != std::string::npos && end <= limits_.head_bytes) {
    const std::string head = bytes.substr(0, end);
    return Respond(id, head, connection);
  }
  if (bytes.size() <= limits_.head_bytes) return true;
  return Send({.status = 431, .body = "the head of the request is too large\n"},
              /*head_alone=*/false, connection);
}

bool HttpConnections::Respond(Id id, std::string_view head, Connection* connection) {
  const std::optional<HttpRequest> request = ParseHttpHead(head);
  if (!request) {
    return Send({.status = 400, .body = "malformed\n"}, /*head_alone=*/false, connection);
  }
  const bool head_alone = request->method == "HEAD";
  if (const std::optional<HttpResponse> response = handlers_.at_once(*request)) {
    return Send(*response, head_alone, connection);
  }
  const auto place =
      std::make_shared<MemoryShare>(places_.Take(AddressOf(PeerOfSocket(connection->fd.get())), 1));
  const bool posted = *place && late_->Post([this, id, head_alone, place, request = *request] {
    HttpResponse response = handlers_.late(request);
    MutexLock lock(&mu_);
    answers_.push_back({id, std::move(response), head_alone});
    Wake();
  });
  if (!posted) {
    return Send({.status = 503, .body = "too many requests; retry later\n"}, head_alone,
                connection);
  }
  connection->place = place;
  connection->state = Connection::State::kWaiting;
  connection->until = MonoTime::max();
  connection->bytes.clear();
  return true;
}

bool HttpConnections::Send(const HttpResponse& response, bool head_alone, Connection* connection) {
  connection->bytes = absl::StrCat(
      "HTTP/1.1 ", response.status, " ", std::string(ReasonPhrase(response.status)),
      "\r\nContent-Type: ", response.type, "\r\nContent-Length: ", response.body.size(),
      "\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n", response.more_headers,
      "Connection: close\r\n\r\n", head_alone ? "" : response.body);
  connection->written = 0;
  connection->state = Connection::State::kWriting;
  connection->until = Clock::Real()->Now() + limits_.answer_time;
  return Write(connection);
}

bool HttpConnections::Write(Connection* connection) {
  const std::string_view rest = std::string_view(connection->bytes).substr(connection->written);
  const ssize_t count = send(connection->fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (count < 0) return WouldBlock();
  connection->written += count;
  if (connection->written < connection->bytes.size()) return true;
  if (shutdown(connection->fd.get(), SHUT_WR) != 0) return false;
  connection->bytes = std::string();
  connection->place.reset();
  connection->state = Connection::State::kClosing;
  connection->until = Clock::Real()->Now() + limits_.request_time;
  return true;
}

}  // namespace sluice
