// The connections of the HTTP port.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/memory_budget.h"
#include "base/mutex.h"
#include "base/work_queue.h"
#include "server/net/grpc_1_51/listening_sockets.h"

namespace sluice {

struct HttpRequest {
  std::string method;
  std::string path;  // without the query (from a question mark on)
  std::optional<std::string> host{};
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body{};
  std::string more_headers{};  // each line including its line end
};

// Parses `head`, a request's lines up to the empty line. Returns nullopt if it is malformed.
std::optional<HttpRequest> ParseHttpHead(std::string_view head);

// Reads one request per connection, writes the answer and closes the connection. One thread does
// this for all connections and never waits for a peer, so a slow peer does not delay the others.
// When there are too many connections, the thread closes the oldest one that waits for its peer: it
// has sent no whole request, or its answer is written. If there is none, it closes the oldest one.
// A second thread makes the answers that take long.
class HttpConnections {
 public:
  struct Limits {
    size_t connections = 256;
    size_t head_bytes = 16 << 10;
    // Answers being made or sent, shared among the peers' addresses as by FairShare; more are
    // refused with 503.
    int64_t late_answers = 16;
    nanoseconds request_time = std::chrono::seconds(1);  // limit for a request to arrive
    nanoseconds answer_time = std::chrono::seconds(10);  // limit for the peer to read its answer
  };
  struct Handlers {
    // Returns the answer, or nullopt if making it takes long. Must return quickly.
    std::function<std::optional<HttpResponse>(const HttpRequest&)> at_once;
    // Returns the answer to any other request. Called on the second thread.
    std::function<HttpResponse(const HttpRequest&)> late;
  };

  // Returns the errors of ListenOn, and Unavailable if there is no descriptor.
  static absl::StatusOr<std::unique_ptr<HttpConnections>> Start(const std::string& address,
                                                                const Limits& limits,
                                                                Handlers handlers);
  // Closes all connections. Waits for an answer that is being made.
  ~HttpConnections();

  int port() const { return sockets_.port; }

 private:
  struct Connection {
    enum class State {
      kReading,
      kWaiting,  // for the second thread to make the answer
      kWriting,
      kClosing,  // until the peer closes its side, so that the peer gets the whole answer
    };
    Descriptor fd;
    State state = State::kReading;
    // Of the late answer. The work that makes it has the place too, even if the peer is gone.
    std::shared_ptr<MemoryShare> place{};
    MonoTime until{};     // the connection is closed at this time
    std::string bytes{};  // the bytes read so far, or the bytes still to write
    size_t written = 0;
  };
  using Id = uint64_t;
  using Connections = std::map<Id, Connection>;  // the oldest first

  HttpConnections(ListeningSockets sockets, Descriptor wake, const Limits& limits,
                  Handlers handlers);

  void Run();
  void Poll();
  void AcceptFrom(int listener);
  // Closes a connection to make room for a new one. Returns false if none can be closed.
  bool MakeRoom();
  void CloseExpired();
  void TakeLateAnswers();
  // These continue a connection and return false if it must be closed.
  bool Advance(Id id, Connection* connection);
  bool Read(Id id, Connection* connection);
  bool Respond(Id id, std::string_view head, Connection* connection);
  bool Send(const HttpResponse& response, bool head_alone, Connection* connection);
  bool Write(Connection* connection);
  void Wake() const;

  ListeningSockets sockets_;
  const Descriptor wake_;
  const Limits limits_;
  const Handlers handlers_;
  std::atomic<bool> stopping_ = false;

  // Used by the first thread only.
  Connections connections_;
  MemoryBudget places_;  // of late answers
  Id next_id_ = 0;
  MonoTime accepts_from_{};  // no connection is accepted before; set when descriptors run out

  struct LateAnswer {
    Id id;
    HttpResponse response;
    bool head_alone;
  };
  Mutex mu_;
  std::vector<LateAnswer> answers_ ABSL_GUARDED_BY(mu_);

  std::unique_ptr<JobQueue> late_;
  std::thread thread_;
};

}  // namespace sluice
