#include "server/net/grpc_1_51/grpc_listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <future>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fault_injection.h"
#include "tests/support/gate.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// Stands in for a gRPC server: keeps the connections that it receives.
class Holder {
 public:
  std::unique_ptr<GrpcListener::Acceptor> MakeAcceptor() {
    return std::make_unique<Acceptor>(this);
  }
  Descriptor Next() {
    MutexLock lock(&mu_);
    while (held_.empty()) came_.Wait(&mu_);
    Descriptor first = std::move(held_.front());
    held_.erase(held_.begin());
    return first;
  }

 private:
  class Acceptor : public GrpcListener::Acceptor {
   public:
    explicit Acceptor(Holder* holder) : holder_(holder) {}
    void HandleNewConnection(NewConnectionParameters* connection) override {
      MutexLock lock(&holder_->mu_);
      holder_->held_.emplace_back(connection->fd);
      holder_->came_.Signal();
    }

   private:
    Holder* const holder_;
  };

  Mutex mu_;
  CondVar came_;
  std::vector<Descriptor> held_ ABSL_GUARDED_BY(mu_);
};

// Connects from the IPv4 address `from`, or from any.
Descriptor Connect(int family, int port, in_addr_t from = INADDR_ANY) {
  Descriptor fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (from != INADDR_ANY) {
    sockaddr_in near{};
    near.sin_family = AF_INET;
    near.sin_addr.s_addr = htonl(from);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&near), sizeof near), 0);
  }
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(static_cast<in_port_t>(port));
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = v4.sin_port;
  v6.sin6_addr = in6addr_loopback;
  const bool connected = family == AF_INET
                             ? connect(fd.get(), reinterpret_cast<sockaddr*>(&v4), sizeof v4) == 0
                             : connect(fd.get(), reinterpret_cast<sockaddr*>(&v6), sizeof v6) == 0;
  return connected ? std::move(fd) : Descriptor();
}

// Waits until the other end closes the connection.
bool IsClosed(const Descriptor& connection) {
  char byte = 0;
  return recv(connection.get(), &byte, 1, 0) <= 0;
}

// Returns the local address of `connection`, the listener's peer, in gRPC's format.
std::string NameOf(const Descriptor& connection) {
  sockaddr_in near{};
  socklen_t size = sizeof near;
  EXPECT_EQ(getsockname(connection.get(), reinterpret_cast<sockaddr*>(&near), &size), 0);
  return absl::StrCat("ipv4:127.0.0.1:", ntohs(near.sin_port));
}

class GrpcListenerTest : public ::testing::Test {
 protected:
  GrpcListenerTest() : listener_(*GrpcListener::Bind("127.0.0.1:0", {3, 3})) {
    listener_->Start(holder_.MakeAcceptor());
  }
  Descriptor Connect() const { return sluice::Connect(AF_INET, listener_->port()); }

  Holder holder_;
  std::unique_ptr<GrpcListener> listener_;
};

TEST_F(GrpcListenerTest, HandsOverEveryConnection) {
  const Descriptor client = Connect();
  const Descriptor taken = holder_.Next();
  ASSERT_EQ(send(client.get(), "x", 1, 0), 1);
  char byte = 0;
  while (recv(taken.get(), &byte, 1, 0) < 0) EXPECT_EQ(errno, EAGAIN) << "it does not block";
  EXPECT_EQ(byte, 'x');
  EXPECT_EQ(listener_->Stats().open, 1);
}

TEST_F(GrpcListenerTest, ClosesConnectionsBeyondTheLimitUntilOthersEnd) {
  std::vector<Descriptor> clients, taken;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(Connect());
    taken.push_back(holder_.Next());
  }
  EXPECT_TRUE(IsClosed(Connect()));
  EXPECT_EQ(listener_->Stats().refused, 1);
  EXPECT_EQ(listener_->Stats().open, 3);
  taken.pop_back();
  EXPECT_EQ(listener_->Stats().open, 2);
  // The new connection may reuse the descriptor of an ended one.
  clients.push_back(Connect());
  taken.push_back(holder_.Next());
  EXPECT_TRUE(IsClosed(Connect()));
  EXPECT_EQ(listener_->Stats().refused, 2);
}

TEST_F(GrpcListenerTest, AReusedDescriptorDoesNotCountAsAConnection) {
  const Descriptor client = Connect();
  Descriptor taken = holder_.Next();
  const Descriptor other(dup2(STDIN_FILENO, taken.get()));
  taken.Release();
  EXPECT_EQ(listener_->Stats().open, 0);
}

TEST_F(GrpcListenerTest, ClosesTheConnectionOfAPeer) {
  const Descriptor wanted = Connect();
  const Descriptor taken = holder_.Next();
  const Descriptor other = Connect();
  const Descriptor other_taken = holder_.Next();
  listener_->Close("ipv4:192.0.2.1:1");
  EXPECT_EQ(listener_->Stats().broken_off, 0);
  listener_->Close(NameOf(wanted));
  EXPECT_TRUE(IsClosed(wanted));
  EXPECT_EQ(listener_->Stats().broken_off, 1);
  ASSERT_EQ(send(other_taken.get(), "x", 1, 0), 1);
  EXPECT_FALSE(IsClosed(other));
}

// Two of the three connections come from 127.0.0.1.
TEST_F(GrpcListenerTest, ClosesAllConnectionsOfAnAddress) {
  const Descriptor first = Connect(), second = Connect();
  const Descriptor other = sluice::Connect(AF_INET, listener_->port(), INADDR_LOOPBACK + 1);
  std::vector<Descriptor> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(holder_.Next());
  listener_->CloseAddressOf("ipv4:192.0.2.1:1");
  EXPECT_EQ(listener_->Stats().broken_off, 0);
  for (int i = 0; i < 2; ++i) listener_->CloseAddressOf(NameOf(first));
  EXPECT_TRUE(IsClosed(first));
  EXPECT_TRUE(IsClosed(second));
  EXPECT_EQ(listener_->Stats().broken_off, 2);
  for (const Descriptor& each : taken) send(each.get(), "x", 1, MSG_NOSIGNAL);
  EXPECT_FALSE(IsClosed(other));
}

TEST_F(GrpcListenerTest, AClosedConnectionHasNoDataLeft) {
  const Descriptor client = Connect();
  const Descriptor taken = holder_.Next();
  const std::string data(100'000, 'x');
  ASSERT_EQ(send(client.get(), data.data(), data.size(), 0), std::ssize(data));
  char byte = 0;
  while (recv(taken.get(), &byte, 1, MSG_PEEK) < 0) ASSERT_EQ(errno, EAGAIN);
  listener_->Close(NameOf(client));
  EXPECT_LE(recv(taken.get(), &byte, 1, 0), 0);
}

TEST_F(GrpcListenerTest, AcceptsAgainAfterFailuresWithoutSpinning) {
  constexpr int kFailures = 3;
  const auto begin = Clock::Real()->Now();
  ASSERT_TRUE(SetFaults(absl::StrCat("accept:fail=internal*", kFailures)).ok());
  const Descriptor client = Connect();
  const Descriptor taken = holder_.Next();
  EXPECT_TRUE(SetFaults("").ok());
  EXPECT_EQ(listener_->Stats().failed_accepts, kFailures);
  EXPECT_EQ(listener_->Stats().open, 1);
  // The listener paused after each failure.
  EXPECT_GE(Clock::Real()->Now() - begin, kFailures * std::chrono::milliseconds(100));
}

TEST_F(GrpcListenerTest, AfterStopConnectionsAreRefused) {
  const int port = listener_->port();
  const Descriptor client = Connect();
  const Descriptor taken = holder_.Next();
  listener_->Stop();
  EXPECT_LT(sluice::Connect(AF_INET, port).get(), 0);
  ASSERT_EQ(send(taken.get(), "x", 1, 0), 1);
  EXPECT_FALSE(IsClosed(client)) << "connections that were handed over stay open";
}

TEST(GrpcListenerHostTest, OneAddressHasAtMostItsShareOfTheConnections) {
  Holder holder;
  const auto listener = *GrpcListener::Bind("127.0.0.1:0", {4, 2});
  listener->Start(holder.MakeAcceptor());
  const in_addr_t other = INADDR_LOOPBACK + 1;
  std::vector<Descriptor> clients, taken;
  for (const in_addr_t from : {INADDR_LOOPBACK, INADDR_LOOPBACK, other}) {
    clients.push_back(Connect(AF_INET, listener->port(), from));
    taken.push_back(holder.Next());
  }
  EXPECT_TRUE(IsClosed(Connect(AF_INET, listener->port(), INADDR_LOOPBACK)));
  EXPECT_EQ(listener->Stats().refused, 1);
  clients.push_back(Connect(AF_INET, listener->port(), other));
  taken.push_back(holder.Next());
  EXPECT_TRUE(IsClosed(Connect(AF_INET, listener->port(), other + 1))) << "all are taken";
  taken.erase(taken.begin());
  EXPECT_EQ(listener->Stats().open, 3);
  clients.push_back(Connect(AF_INET, listener->port(), INADDR_LOOPBACK));
  taken.push_back(holder.Next());
}

// An acceptor that opens a new connection for each one it receives, so that one always waits.
class Flood final : public GrpcListener::Acceptor {
 public:
  Flood(int port, Gate* gate) : port_(port), gate_(gate) {}
  void HandleNewConnection(NewConnectionParameters* connection) override {
    const Descriptor taken(connection->fd);
    clients_.push_back(Connect(AF_INET, port_));
    if (clients_.size() == 3) gate_->Pass();
  }

 private:
  const int port_;
  Gate* const gate_;
  std::vector<Descriptor> clients_;
};

TEST(GrpcListenerFloodTest, StopEndsAFlood) {
  Gate gate;
  const auto listener = *GrpcListener::Bind("127.0.0.1:0", {100'000, 100'000});
  listener->Start(std::make_unique<Flood>(listener->port(), &gate));
  const Descriptor first = Connect(AF_INET, listener->port());
  gate.AwaitArrivals(1);
  std::future<void> stopped = std::async(std::launch::async, [&] { listener->Stop(); });
  gate.Open();
  stopped.get();
}

TEST(GrpcListenerBindTest, AWildcardListensOnBothFamilies) {
  for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
    Holder holder;
    auto listener = *GrpcListener::Bind(address, {10, 10});
    listener->Start(holder.MakeAcceptor());
    EXPECT_GE(Connect(AF_INET, listener->port()).get(), 0);
    const Descriptor loopback(socket(AF_INET6, SOCK_STREAM, 0));
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_addr = in6addr_loopback;
    const bool has_v6 = bind(loopback.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) == 0;
    EXPECT_EQ(Connect(AF_INET6, listener->port()).get() >= 0, has_v6);
  }
}

TEST(GrpcListenerBindTest, ErrorsNameTheAddress) {
  auto first = *GrpcListener::Bind("127.0.0.1:0", {1, 1});
  const std::string taken = absl::StrCat("127.0.0.1:", first->port());
  for (const std::string& address :
       {taken, std::string("192.0.2.1:1"), std::string("no.such.host.invalid:1"),
        std::string("nonsense"), std::string("127.0.0.1:99999999")}) {
    const auto listener = GrpcListener::Bind(address, {1, 1});
    EXPECT_FALSE(listener.ok()) << address;
    EXPECT_THAT(std::string(listener.status().message()), HasSubstr(address));
  }
  EXPECT_EQ(GrpcListener::Bind(taken, {1, 1}).status().code(), absl::StatusCode::kUnavailable);
}

TEST(ReserveDescriptorsTest, ReservesUpToTheHardLimit) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(ReserveDescriptors(10), 10);
  const int64_t most = static_cast<int64_t>(before.rlim_max);
  EXPECT_EQ(ReserveDescriptors(most), most - 832);
  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max) << "the soft limit was raised";
}

}  // namespace
}  // namespace sluice
