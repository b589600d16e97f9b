// Reports TLS handshakes that fail, with the peer.
//
// gRPC 1.51 logs a failed handshake without its peer, and reports it to no interface. It makes the
// OpenSSL object of a connection on the thread that hands the connection over, and frees it when
// the handshake fails or the connection ends. This class attaches the peer to each such object
// (SSL_get_ex_new_index), and looks at the state of the object when it is freed.
//
//   FailedHandshakes failed([](const FailedHandshake& failure) { ... });
//   const FailedHandshakes::Scope scope(&failed, peer);
//   acceptor->HandleNewConnection(&parameters);
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/enum_names.h"

namespace sluice {

// How a handshake failed.
enum class HandshakeEnd {
  kRefused,        // the daemon sent an alert, for example for a peer without a valid certificate
  kRefusedByPeer,  // the peer sent an alert, for example because it does not trust the certificate
  kIncomplete,     // the peer sent something else than TLS, ended the connection, or was too slow
};
consteval auto EnumNamesOf(HandshakeEnd) {
  using enum HandshakeEnd;
  return EnumNameTable<HandshakeEnd>(
      {{kRefused, "refused"}, {kRefusedByPeer, "refused_by_peer"}, {kIncomplete, "incomplete"}});
}

struct FailedHandshake {
  std::string peer;  // in gRPC's format
  HandshakeEnd end = HandshakeEnd::kIncomplete;
  std::string_view detail;  // the alert, or the state of the handshake; a static text
};

// Thread-safe.
class FailedHandshakes {
 public:
  using Counts = std::array<int64_t, CountEnumerators<HandshakeEnd>()>;
  // Called on any thread, for one failure at a time.
  using OnFailed = std::function<void(const FailedHandshake& failure)>;

  explicit FailedHandshakes(OnFailed on_failed);
  // No call of OnFailed begins after this.
  ~FailedHandshakes();
  FailedHandshakes(const FailedHandshakes&) = delete;
  FailedHandshakes& operator=(const FailedHandshakes&) = delete;

  // Returns the number of failed handshakes by HandshakeEnd.
  Counts counts() const;

  // While this object lives, the connections that this thread hands to gRPC are those of `peer`.
  class Scope {
   public:
    Scope(const FailedHandshakes* watch, std::string_view peer);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

  class State;  // for the implementation

 private:
  const std::shared_ptr<State> state_;  // connections may live longer than this object
};

}  // namespace sluice
