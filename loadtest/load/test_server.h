// Servers of known behaviour for testing the load generator. They speak the protocol and compute
// nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace sluice::load {

struct TestServerOptions {
  std::string address = "127.0.0.1:0";  // port 0 means any free one
  // The least time from a request's arrival to its answer. At 0 this is a null server.
  std::chrono::nanoseconds delay{0};
  // If above 0, requests are served one after the other, and each takes this long, so the capacity
  // is 1 / service_time. `delay` is added to it.
  std::chrono::nanoseconds service_time{0};
  // With service_time, a request is refused with RESOURCE_EXHAUSTED while this many requests wait.
  // 0 means that no request is refused.
  int64_t queue = 0;
  // For the time `stall`, starting `stall_after` the first request, no answer is sent.
  std::chrono::nanoseconds stall_after{0};
  std::chrono::nanoseconds stall{0};
  int64_t wrong_every = 0;  // if above 0, every wrong_every-th answer has other contents
};

class TestServer {
 public:
  // Starts a server. Returns Unavailable if it cannot listen on the address.
  static absl::StatusOr<std::unique_ptr<TestServer>> Start(const TestServerOptions& options);
  virtual ~TestServer() = default;

  virtual std::string address() const = 0;
  virtual int64_t requests() const = 0;  // the number of requests received so far
};

}  // namespace sluice::load
