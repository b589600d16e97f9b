// The daemon's HTTP server: /metrics, /livez, /readyz and the status page.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "server/admin/status_page/http_connections.h"

namespace sluice {

// The functions that produce the pages. `metrics` and `status` are called on one thread. The others
// are called on another thread and must return quickly.
struct HttpHandlers {
  std::function<std::string()> metrics;  // returns the body of /metrics
  std::function<bool()> ready;           // whether /readyz answers 200 rather than 503
  std::function<bool()> live;            // whether /livez answers 200 rather than 503
  // Returns the body of /status.json. If empty, neither /status.json nor the page at / is served.
  std::function<std::string()> status = nullptr;
  std::string host = "localhost";  // HttpOptions::host
};

// Returns whether `host`, the value of a Host header, is a name of this daemon according to
// HttpOptions::host. In a DNS rebinding attack, a foreign page lets its own name resolve to the
// daemon's address; the browser then sends the foreign name.
bool IsOwnHost(std::string_view host, std::string_view own);

// Serves until it is destroyed. Destruction waits at most for one page that is being made. Probes
// are answered on a thread that never waits for callers.
class HttpServer {
 public:
  // Requires `address` to be HOST:PORT; port 0 picks a free one. Returns Unavailable, naming the
  // address, if it is taken.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           HttpHandlers handlers,
                                                           const HttpConnections::Limits& limits);
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           HttpHandlers handlers);

  int port() const { return connections_->port(); }

 private:
  explicit HttpServer(HttpHandlers handlers) : handlers_(std::move(handlers)) {}

  std::optional<HttpResponse> AnswerAtOnce(const HttpRequest& request) const;
  HttpResponse AnswerLate(const HttpRequest& request) const;

  const HttpHandlers handlers_;
  std::unique_ptr<HttpConnections> connections_;  // last: it calls the handlers
};

}  // namespace sluice
