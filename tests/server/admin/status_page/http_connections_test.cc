// Tests that peers of the HTTP port do not affect other peers.
#include "server/admin/status_page/http_connections.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "server/admin/status_page/http.h"
#include "tests/server/observe/scrape.h"
#include "tests/support/gate.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using testing::HttpCall;
using testing::HttpGet;
using ::testing::StartsWith;

// A client connection that the test controls.
class Peer {
 public:
  // `last` is the last byte of the peer's address, 127.0.0.1 for example.
  explicit Peer(int port, uint32_t last = 1) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~0xFFu) | last);
    SLUICE_CHECK(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    SLUICE_CHECK(connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }

  void Say(std::string_view text) const {
    SLUICE_CHECK(send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) >= 0);
  }
  // Returns all bytes until the other side closes the connection.
  std::string ReadAll() const {
    std::string text;
    char buffer[4096];
    for (ssize_t count; (count = recv(fd_.get(), buffer, sizeof buffer, 0)) > 0;) {
      text.append(buffer, count);
    }
    return text;
  }

 private:
  const Descriptor fd_;
};

struct HeadRow {
  const char* name;
  std::string head;
  std::string method = "";  // empty if it is malformed
  std::string path = "";
  std::string host = "";
};
class HeadTable : public TableTest<HeadRow> {};

TEST_P(HeadTable, IsReadOrRefused) {
  const std::optional<HttpRequest> request = ParseHttpHead(row().head);
  ASSERT_EQ(request.has_value(), !row().method.empty());
  if (!request) return;
  EXPECT_EQ(request->method, row().method);
  EXPECT_EQ(request->path, row().path);
  EXPECT_EQ(request->host.value_or(""), row().host);
}

const HeadRow kHeadRows[] = {
    {.name = "AMethodAPathAndAHost",
     .head = "GET /livez HTTP/1.1\r\nHost: localhost:1",
     .method = "GET",
     .path = "/livez",
     .host = "localhost:1"},
    {.name = "NamesOfHeadersMayHaveCapitals",
     .head = "HEAD / HTTP/1.0\r\nA: b\r\nhOST:\t x ",
     .method = "HEAD",
     .path = "/",
     .host = "x"},
    {.name = "TheQueryIsNotPartOfThePath",
     .head = "GET /status.json?a=/b HTTP/1.1",
     .method = "GET",
     .path = "/status.json"},
    {.name = "NothingIsMalformed", .head = ""},
    {.name = "APathMustBeginWithASlash", .head = "GET livez HTTP/1.1"},
    {.name = "TheVersionMustBeKnown", .head = "GET / HTTP/2.0"},
    {.name = "AVersionIsRequired", .head = "GET /"},
    {.name = "AMethodIsRequired", .head = " / HTTP/1.1"},
    {.name = "AHeaderMustHaveAColon", .head = "GET / HTTP/1.1\r\nHost"},
    {.name = "AHeaderMustHaveAName", .head = "GET / HTTP/1.1\r\n: x"},
    {.name = "ASecondHostIsMalformed", .head = "GET / HTTP/1.1\r\nHost: a\r\nHost: b"},
};
SLUICE_TABLE(HeadTable, kHeadRows);

TEST(ParseHttpHeadTest, AnyBytesAreReadOrRefused) {
  std::mt19937 random(1);
  const std::string_view alphabet("GET / HTTP/1.1\r\n:?Host\0\xFF", 24);
  for (int i = 0; i < 100'000; ++i) {
    std::string head = i % 2 == 0 ? "GET / HTTP/1.1\r\n" : "";
    for (size_t n = random() % 40; n > 0; --n) head += alphabet[random() % alphabet.size()];
    const std::optional<HttpRequest> request = ParseHttpHead(head);
    ASSERT_TRUE(!request || request->path.starts_with('/')) << head;
  }
}

// Requests have no effective time limit, so no timeout ends them during a test.
class HttpConnectionsTest : public ::testing::Test {
 protected:
  HttpConnectionsTest()
      : http_(*HttpServer::Start("127.0.0.1:0",
                                 {.metrics =
                                      [this] {
                                        rendering_.Pass();
                                        return body_;
                                      },
                                  .ready = [] { return true; },
                                  .live = [] { return true; }},
                                 {.connections = kConnections,
                                  .late_answers = kLateAnswers,
                                  .request_time = std::chrono::hours(1),
                                  .answer_time = std::chrono::hours(1)})) {}
  ~HttpConnectionsTest() override { rendering_.Open(); }

  int port() const { return http_->port(); }

  static constexpr size_t kConnections = 64;
  static constexpr int64_t kLateAnswers = 8;  // one address gets half of them

  Gate rendering_;
  std::string body_ = std::string(8 << 20, 'm');
  std::unique_ptr<HttpServer> http_;
};

TEST_F(HttpConnectionsTest, SilentPeersDelayNoProbe) {
  std::vector<std::unique_ptr<Peer>> peers;
  for (size_t i = 0; i < 4 * kConnections; ++i) {
    peers.push_back(std::make_unique<Peer>(port()));
    if (i % 2 == 1) peers.back()->Say("GET /livez HTTP/1.1\r\nHo");
    if (i % 16 == 0) {
      EXPECT_EQ(HttpGet(port(), "/livez").status, 200) << i;
    }
  }
  EXPECT_EQ(HttpGet(port(), "/readyz").status, 200);
  EXPECT_EQ(peers.front()->ReadAll(), "") << "the oldest had to make room";
  peers.back()->Say("st: x\r\n\r\n");
  EXPECT_THAT(peers.back()->ReadAll(), StartsWith("HTTP/1.1 200 OK\r\n"));
}

// No other event wakes the thread in this test.
TEST(HttpConnections, ASilentPeerIsDisconnectedAfterItsTimeout) {
  const auto http = *HttpServer::Start(
      "127.0.0.1:0", {},
      {.request_time = std::chrono::milliseconds(20), .answer_time = std::chrono::hours(1)});
  const Peer silent(http->port()), half(http->port());
  half.Say("GET /livez HTTP/1.1\r\nHo");
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_EQ(half.ReadAll(), "");
}

TEST_F(HttpConnectionsTest, SlowPagesDelayNoProbeAndAreLimited) {
  std::vector<std::unique_ptr<Peer>> peers;
  for (int64_t i = 0; i < kLateAnswers / 2; ++i) {
    peers.push_back(std::make_unique<Peer>(port()));
    peers.back()->Say("GET /metrics HTTP/1.1\r\n\r\n");
  }
  rendering_.AwaitArrivals(1);
  EXPECT_EQ(HttpGet(port(), "/livez").status, 200);
  int status = 0;
  // This request and the peers' requests may arrive in any order.
  while (status != 503) {
    peers.push_back(std::make_unique<Peer>(port()));
    peers.back()->Say("HEAD /metrics HTTP/1.1\r\n\r\n");
    if (peers.size() > 2 * kLateAnswers) status = HttpCall(port(), "HEAD", "/metrics").status;
  }
  rendering_.Open();
  EXPECT_GT(peers.front()->ReadAll().size(), body_.size());
}

TEST_F(HttpConnectionsTest, OneAddressLeavesAnswersForOthersEvenIfItCloses) {
  for (int64_t i = 0; i < 4 * kLateAnswers; ++i) Peer(port()).Say("GET /metrics HTTP/1.1\r\n\r\n");
  rendering_.AwaitArrivals(1);
  const Peer other(port(), 2);
  other.Say("GET /metrics HTTP/1.1\r\n\r\n");
  const Peer first(port());
  first.Say("GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(first.ReadAll(), StartsWith("HTTP/1.1 503 "));
  rendering_.Open();
  EXPECT_THAT(other.ReadAll(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpConnectionsTest, APeerThatDoesNotReadDelaysNeitherProbesNorTheShutdown) {
  rendering_.Open();
  const Peer peer(port());
  peer.Say("GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_EQ(HttpGet(port(), "/metrics").body, body_) << "other peers get their answers";
  EXPECT_EQ(HttpGet(port(), "/livez").status, 200);
  http_.reset();
}

TEST_F(HttpConnectionsTest, AHeadMayArriveByteByByteButMustNotBeLong) {
  const Peer slow(port());
  for (const char byte : std::string_view("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")) {
    slow.Say({&byte, 1});
  }
  EXPECT_THAT(slow.ReadAll(), ::testing::EndsWith("\r\n\r\nlive\n"));
  const Peer endless(port());
  endless.Say("GET /livez HTTP/1.1\r\nX: " + std::string(17 << 10, 'x'));
  EXPECT_THAT(endless.ReadAll(), StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpConnectionsTest, PeersThatDisconnectEarlyAreForgotten) {
  for (size_t i = 0; i < 3 * kConnections; ++i) {
    Peer(port()).Say(i % 2 == 0 ? "GET /livez HTTP/1.1\r\n\r\n" : "GET /me");
  }
  {
    const Peer late(port());
    late.Say("GET /metrics HTTP/1.1\r\n\r\n");
    rendering_.AwaitArrivals(1);
  }
  rendering_.Open();
  EXPECT_EQ(HttpGet(port(), "/metrics").status, 200);
  EXPECT_EQ(HttpGet(port(), "/livez").status, 200);
}

}  // namespace
}  // namespace sluice
