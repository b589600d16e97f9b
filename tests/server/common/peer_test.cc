#include "server/common/peer.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(AddressOfTest, AnIpv4AddressIsOnePeer) {
  EXPECT_EQ(AddressOf("ipv4:192.0.2.1:54321"), "ipv4:192.0.2.1");
}

TEST(AddressOfTest, AnIpv6NetworkOf64BitsIsOnePeer) {
  EXPECT_EQ(AddressOf("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:54321"), "ipv6:2001:db8:1:2::/64");
  EXPECT_EQ(AddressOf("ipv6:%5B2001:db8:1:2::7%5D:1"), AddressOf("ipv6:%5B2001:db8:1:2:9::%5D:2"));
  EXPECT_NE(AddressOf("ipv6:%5B2001:db8:1:2::7%5D:1"), AddressOf("ipv6:%5B2001:db8:1:3::7%5D:1"));
  EXPECT_EQ(AddressOf("ipv6:%5Bfe80::1%25eth0%5D:9"), "ipv6:fe80::/64");
}

TEST(AddressOfTest, OtherTextsStayDistinct) {
  EXPECT_EQ(AddressOf("unix:/run/a:1"), "unix:/run/a");
  EXPECT_EQ(AddressOf("ipv6:nonsense:1"), "ipv6:nonsense");
  EXPECT_EQ(AddressOf(""), "");
}

TEST(IsLocalTest, OnlyLoopbackAddressesAndUnixSocketsAre) {
  for (const char* local : {"ipv4:127.0.0.1:5", "ipv4:127.9.8.7:5", "ipv6:%5B::1%5D:5",
                            "ipv6:[::1]:5", "ipv6:%5B::ffff:127.0.0.1%5D:5", "unix:/run/a:1"}) {
    EXPECT_TRUE(IsLocal(local)) << local;
  }
  for (const char* remote : {"ipv4:128.0.0.1:5", "ipv4:1.127.0.0:5", "ipv6:%5B::1:1%5D:5",
                             "ipv6:%5B2001:db8::1%5D:5", "ipv6:%5B::ffff:10.0.0.1%5D:5", ""}) {
    EXPECT_FALSE(IsLocal(remote)) << remote;
  }
}

}  // namespace
}  // namespace sluice
