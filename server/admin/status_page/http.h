// The daemon's HTTP server: /metrics, /livez, /readyz and the status page.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

struct mg_context;
struct mg_connection;

namespace sluice {

// The functions that produce the pages. They are called on the HTTP threads.
struct HttpHandlers {
  std::function<std::string()> metrics;  // returns the body of /metrics
  std::function<bool()> ready;           // whether /readyz answers 200 rather than 503
  std::function<bool()> live;            // whether /livez answers 200 rather than 503
  // Returns the body of /status.json. If empty, neither /status.json nor the page that reads it, /,
  // is served.
  std::function<std::string()> status = nullptr;
  std::string host = "localhost";  // HttpOptions::host
};

// Returns whether `host`, the value of a Host header, names this daemon as HttpOptions::host says.
// A page from elsewhere that has a name of its own resolve to the daemon's address (DNS rebinding)
// sends that name.
bool IsOwnHost(std::string_view host, std::string_view own);

// Serves until it is destroyed. The number of threads, a limit of 16 KiB for request headers and a
// limit of one second per request bound what slow or idle callers can hold. Such callers can delay
// scrapes and probes, but never inference.
class HttpServer {
 public:
  // Requires `address` to be HOST:PORT; port 0 picks a free one. Returns Unavailable, naming the
  // port, if it is taken.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           HttpHandlers handlers);
  ~HttpServer();

  int port() const { return port_; }

 private:
  explicit HttpServer(HttpHandlers handlers) : handlers_(std::move(handlers)) {}

  // Answers with an error and returns true if the method or the Host is not served.
  bool Refuse(mg_connection* connection) const;
  static int Metrics(mg_connection* connection, void* self);
  static int Live(mg_connection* connection, void* self);
  static int Ready(mg_connection* connection, void* self);
  static int Page(mg_connection* connection, void* self);
  static int Status(mg_connection* connection, void* self);

  const HttpHandlers handlers_;
  mg_context* context_ = nullptr;
  int port_ = 0;
};

}  // namespace sluice
