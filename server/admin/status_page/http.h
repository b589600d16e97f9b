// The HTTP side: /metrics, /livez, /readyz and the status page.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

struct mg_context;
struct mg_connection;

namespace sluice {

// Called on the HTTP threads.
struct HttpHandlers {
  std::function<std::string()> metrics;  // the body of /metrics
  std::function<bool()> ready;           // /readyz: 200 or 503
  std::function<bool()> live;            // /livez: likewise
  // The body of /status.json. Empty: neither that nor the page that reads it, /, is served.
  std::function<std::string()> status = nullptr;
};

// Serves until destroyed. A few threads, heads of at most 16 KiB and a second's time for each
// request bound what slow or idle callers can hold; they can delay scrapes and probes, never
// inference.
class HttpServer {
 public:
  // `address` is HOST:PORT; port 0 picks one. Unavailable when the port is taken, naming it.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           HttpHandlers handlers);
  ~HttpServer();

  int port() const { return port_; }

 private:
  explicit HttpServer(HttpHandlers handlers) : handlers_(std::move(handlers)) {}

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
