#include "server/net/grpc_1_51/failed_handshakes.h"

#include <openssl/crypto.h>
#include <openssl/ssl.h>

#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "server/net/grpc_1_51/version.h"

namespace sluice {

class FailedHandshakes::State {
 public:
  explicit State(OnFailed on_failed) : on_failed_(std::move(on_failed)) {}

  void Add(const FailedHandshake& failure) {
    counts_[static_cast<size_t>(failure.end)].fetch_add(1, std::memory_order_relaxed);
    MutexLock lock(&mu_);
    if (on_failed_ != nullptr) on_failed_(failure);
  }

  void Close() {
    MutexLock lock(&mu_);
    on_failed_ = nullptr;
  }

  Counts counts() const {
    Counts counts{};
    for (size_t i = 0; i < counts.size(); ++i) {
      counts[i] = counts_[i].load(std::memory_order_relaxed);
    }
    return counts;
  }

 private:
  std::array<std::atomic<int64_t>, std::tuple_size_v<Counts>> counts_{};
  Mutex mu_;  // held while on_failed_ runs, so that Close waits for it
  OnFailed on_failed_ ABSL_GUARDED_BY(mu_);
};

namespace {

// A server with TLS 1.3 that has sent its certificate is in the state TLS_ST_EARLY_DATA until the
// peer answers. gRPC's clients end the connection without an alert.
constexpr char kNoAnswer[] =
    "no answer to the certificate; a gRPC client that does not trust it ends the connection";

// The connection that this thread hands over.
thread_local const std::shared_ptr<FailedHandshakes::State>* handed_to = nullptr;
thread_local std::string_view handed_peer;

// The part of a connection's SSL object that belongs to this file.
struct Watched {
  std::shared_ptr<FailedHandshakes::State> state;
  FailedHandshake failure;
};

// OpenSSL calls this for each record. gRPC uses the callback of the handshake's states itself.
void OnRecord(int is_sent, int /*version*/, int type, const void* bytes, size_t size, SSL* /*ssl*/,
              void* argument) {
  if (type != SSL3_RT_ALERT || size != 2) return;
  FailedHandshake& failure = static_cast<Watched*>(argument)->failure;
  failure.end = is_sent != 0 ? HandshakeEnd::kRefused : HandshakeEnd::kRefusedByPeer;
  failure.detail = SSL_alert_desc_string_long(static_cast<const unsigned char*>(bytes)[1]);
}

void OnNew(void* parent, void* /*ptr*/, CRYPTO_EX_DATA* data, int index, long /*argl*/,
           void* /*argp*/) {
  if (handed_to == nullptr) return;
  auto* const watched = new Watched{*handed_to, {.peer = std::string(handed_peer), .detail = {}}};
  SSL* const ssl = static_cast<SSL*>(parent);
  if (CRYPTO_set_ex_data(data, index, watched) != 1) return delete watched;
  SSL_set_msg_callback(ssl, &OnRecord);
  SSL_set_msg_callback_arg(ssl, watched);
}

void OnFree(void* parent, void* ptr, CRYPTO_EX_DATA* /*data*/, int /*index*/, long /*argl*/,
            void* /*argp*/) {
  const std::unique_ptr<Watched> watched(static_cast<Watched*>(ptr));
  SSL* const ssl = static_cast<SSL*>(parent);
  if (watched == nullptr) return;
  SSL_set_msg_callback(ssl, nullptr);
  if (SSL_is_init_finished(ssl) != 0) return;
  FailedHandshake& failure = watched->failure;
  if (failure.detail.empty()) {
    failure.detail =
        SSL_get_state(ssl) == TLS_ST_EARLY_DATA ? kNoAnswer : SSL_state_string_long(ssl);
  }
  watched->state->Add(failure);
}

// Attaches a Watched to each SSL object that is made from now on.
void Install() {
  static const int index = SSL_get_ex_new_index(0, nullptr, &OnNew, nullptr, &OnFree);
  SLUICE_CHECK(index >= 0);
}

}  // namespace

FailedHandshakes::FailedHandshakes(OnFailed on_failed)
    : state_(std::make_shared<State>(std::move(on_failed))) {
  Install();
}

FailedHandshakes::~FailedHandshakes() { state_->Close(); }

FailedHandshakes::Counts FailedHandshakes::counts() const { return state_->counts(); }

FailedHandshakes::Scope::Scope(const FailedHandshakes* watch, std::string_view peer) {
  handed_to = &watch->state_;
  handed_peer = peer;
}

FailedHandshakes::Scope::~Scope() { handed_to = nullptr; }

}  // namespace sluice
