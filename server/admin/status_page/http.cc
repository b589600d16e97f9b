#include "server/admin/status_page/http.h"

#include <arpa/inet.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/admin/status_page/status_page.h"

namespace sluice {
namespace {

constexpr char kPageType[] = "text/html; charset=utf-8";
constexpr char kJsonType[] = "application/json";
constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

HttpResponse Text(int status, std::string body) {
  return {.status = status, .body = std::move(body)};
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

}  // namespace

bool IsOwnHost(std::string_view host, std::string_view own) {
  constexpr std::string_view kPrivate[] = {".localhost", ".local", ".internal", ".svc"};
  const std::string name = NameIn(host);
  if (IsAddress(name) || name == NameIn(own) || name.find('.') == std::string::npos) return true;
  return std::any_of(std::begin(kPrivate), std::end(kPrivate),
                     [&](std::string_view domain) { return name.ends_with(domain); });
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& address, HttpHandlers handlers, const HttpConnections::Limits& limits) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(handlers)));
  const HttpServer* const self = server.get();
  SLUICE_ASSIGN_OR_RETURN(
      server->connections_,
      HttpConnections::Start(
          address, limits,
          {.at_once = [self](const HttpRequest& request) { return self->AnswerAtOnce(request); },
           .late = [self](const HttpRequest& request) { return self->AnswerLate(request); }}));
  return server;
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              HttpHandlers handlers) {
  return Start(address, std::move(handlers), HttpConnections::Limits{});
}

std::optional<HttpResponse> HttpServer::AnswerAtOnce(const HttpRequest& request) const {
  const bool has_page = handlers_.status != nullptr;
  const bool is_page = has_page && (request.path == "/" || request.path == "/status.json");
  const bool is_probe = request.path == "/livez" || request.path == "/readyz";
  if (!is_page && !is_probe && request.path != "/metrics") return Text(404, "page not found\n");
  if (request.method != "GET" && request.method != "HEAD") {
    return Text(405, "only GET and HEAD are served\n");
  }
  if (request.path == "/livez") {
    return handlers_.live() ? Text(200, "live\n") : Text(503, "hung\n");
  }
  if (request.path == "/readyz") {
    return handlers_.ready() ? Text(200, "ready\n") : Text(503, "not ready\n");
  }
  if (request.host && !IsOwnHost(*request.host, handlers_.host)) {
    return Text(421, "the Host header is not a name of this daemon; see server.http.host\n");
  }
  return std::nullopt;
}

HttpResponse HttpServer::AnswerLate(const HttpRequest& request) const {
  if (request.path == "/metrics") return {.type = kMetricsType, .body = handlers_.metrics()};
  if (request.path == "/status.json") return {.type = kJsonType, .body = handlers_.status()};
  return {.type = kPageType,
          .body = kStatusPage,
          .more_headers = absl::StrCat("Content-Security-Policy: ", kStatusPagePolicy,
                                       "\r\nReferrer-Policy: no-referrer\r\n")};
}

}  // namespace sluice
