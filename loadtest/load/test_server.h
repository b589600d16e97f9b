// Servers of known behaviour: they speak the protocol, compute nothing, and are what the load
// generator itself is tested against.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace sluice::load {

struct TestServerOptions {
  std::string address = "127.0.0.1:0";  // port 0: any free one
  // Every answer leaves this long after its request arrived, or later: a null server at 0.
  std::chrono::nanoseconds delay{0};
  // Above 0: requests are served one after the other, each for so long, so the capacity is
  // 1 / service_time. `delay` comes on top.
  std::chrono::nanoseconds service_time{0};
  // With service_time: a request that would find so many waiting is refused with
  // RESOURCE_EXHAUSTED; 0: none is.
  int64_t queue = 0;
  // No answer leaves in the `stall` that begins `stall_after` the first request.
  std::chrono::nanoseconds stall_after{0};
  std::chrono::nanoseconds stall{0};
  int64_t wrong_every = 0;  // above 0: every so many answers have other contents
};

class TestServer {
 public:
  // Unavailable when the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<TestServer>> Start(const TestServerOptions& options);
  virtual ~TestServer() = default;

  virtual std::string address() const = 0;
  virtual int64_t requests() const = 0;  // that came so far
};

}  // namespace sluice::load
