#include "server/admin/status_page/http.h"

#include <arpa/inet.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "civetweb.h"
#include "server/admin/status_page/status_page.h"

namespace sluice {
namespace {

// The number of threads, and the time that a request may take. A peer that sends nothing holds a
// thread until its time is up; with these values, thousands of such peers delay a probe by at most
// a minute.
constexpr char kThreads[] = "16";
constexpr char kRequestTimeoutMs[] = "1000";

constexpr char kTextType[] = "text/plain; charset=utf-8";
constexpr char kPageType[] = "text/html; charset=utf-8";
constexpr char kJsonType[] = "application/json";
constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

// Sends an answer. `more` holds further header lines, each with its line end.
int Answer(mg_connection* connection, int status, const char* type, std::string_view body,
           const std::string& more = "") {
  const bool head = std::string_view(mg_get_request_info(connection)->request_method) == "HEAD";
  mg_printf(connection,
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
            "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n%s"
            "Connection: close\r\n\r\n",
            status, mg_get_response_code_text(connection, status), type, body.size(), more.c_str());
  if (!head) mg_write(connection, body.data(), body.size());
  return status;
}

// If the method is neither GET nor HEAD, answers with an error and returns true.
bool RefuseMethod(mg_connection* connection) {
  const std::string_view method = mg_get_request_info(connection)->request_method;
  if (method == "GET" || method == "HEAD") return false;
  Answer(connection, 405, kTextType, "only GET and HEAD are served\n");
  return true;
}

bool IsAddress(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// Returns the name or address in a Host header, without port and brackets, in lower case.
std::string NameIn(std::string_view host) {
  std::string name = absl::AsciiStrToLower(absl::string_view(host.data(), host.size()));
  if (name.starts_with('[')) return name.substr(1, name.find(']') - 1);
  return name.substr(0, name.find(':'));
}

int IgnoreMessage(const mg_connection* connection, const char* message) { return 1; }

}  // namespace

bool IsOwnHost(std::string_view host, std::string_view own) {
  constexpr std::string_view kPrivate[] = {".localhost", ".local", ".internal", ".svc"};
  const std::string name = NameIn(host);
  if (IsAddress(name) || name == NameIn(own) || name.find('.') == std::string::npos) return true;
  return std::any_of(std::begin(kPrivate), std::end(kPrivate),
                     [&](std::string_view domain) { return name.ends_with(domain); });
}

bool HttpServer::Refuse(mg_connection* connection) const {
  if (RefuseMethod(connection)) return true;
  const char* const host = mg_get_header(connection, "Host");
  if (host == nullptr || IsOwnHost(host, handlers_.host)) return false;
  Answer(connection, 421, kTextType, "the Host is not this daemon's (server.http.host)\n");
  return true;
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              HttpHandlers handlers) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(handlers)));
  const char* options[] = {
      "listening_ports", address.c_str(),     "num_threads", kThreads, "request_timeout_ms",
      kRequestTimeoutMs, "enable_keep_alive", "no",          nullptr};
  mg_callbacks callbacks{};
  callbacks.log_message = &IgnoreMessage;  // callers' errors are not logged
  mg_init_data init{&callbacks, nullptr, options};
  char text[256] = "";
  mg_error_data error{nullptr, text, sizeof(text)};
  server->context_ = mg_start2(&init, &error);
  if (server->context_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, " for HTTP; is the port taken? (", text, ")"));
  }
  mg_server_port port{};
  if (mg_get_server_ports(server->context_, 1, &port) == 1) server->port_ = port.port;
  mg_set_request_handler(server->context_, "/metrics$", &HttpServer::Metrics, server.get());
  mg_set_request_handler(server->context_, "/livez$", &HttpServer::Live, server.get());
  mg_set_request_handler(server->context_, "/readyz$", &HttpServer::Ready, server.get());
  if (server->handlers_.status) {
    mg_set_request_handler(server->context_, "/$", &HttpServer::Page, server.get());
    mg_set_request_handler(server->context_, "/status.json$", &HttpServer::Status, server.get());
  }
  return server;
}

HttpServer::~HttpServer() {
  if (context_ != nullptr) mg_stop(context_);
}

int HttpServer::Metrics(mg_connection* connection, void* self) {
  if (static_cast<HttpServer*>(self)->Refuse(connection)) return 400;
  return Answer(connection, 200, kMetricsType, static_cast<HttpServer*>(self)->handlers_.metrics());
}

int HttpServer::Live(mg_connection* connection, void* self) {
  if (RefuseMethod(connection)) return 405;
  const bool live = static_cast<HttpServer*>(self)->handlers_.live();
  return Answer(connection, live ? 200 : 503, kTextType, live ? "live\n" : "hung\n");
}

int HttpServer::Ready(mg_connection* connection, void* self) {
  if (RefuseMethod(connection)) return 405;
  const bool ready = static_cast<HttpServer*>(self)->handlers_.ready();
  return Answer(connection, ready ? 200 : 503, kTextType, ready ? "ready\n" : "not ready\n");
}

int HttpServer::Page(mg_connection* connection, void* self) {
  if (static_cast<HttpServer*>(self)->Refuse(connection)) return 400;
  return Answer(connection, 200, kPageType, kStatusPage,
                absl::StrCat("Content-Security-Policy: ", kStatusPagePolicy,
                             "\r\nReferrer-Policy: no-referrer\r\n"));
}

int HttpServer::Status(mg_connection* connection, void* self) {
  if (static_cast<HttpServer*>(self)->Refuse(connection)) return 400;
  return Answer(connection, 200, kJsonType, static_cast<HttpServer*>(self)->handlers_.status());
}

}  // namespace sluice
