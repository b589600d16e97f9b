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
#include "base/mutex.h"
#include "base/work_queue.h"
#include "server/net/grpc_1_51/listening_sockets.h"

namespace sluice {

struct HttpRequest {
  std::string method;
  std::string path;  // without what follows a question mark
  std::optional<std::string> host{};
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body{};
  std::string more_headers{};  // each line with its end
};

// Returns the request whose head is `head`, up to the empty line, or nullopt if it is malformed.
std::optional<HttpRequest> ParseHttpHead(std::string_view head);

// Reads one request of each connection, writes its answer and closes the connection. One thread
// does all of it and never waits for a peer, so a peer that sends or takes nothing delays no other.
// When there are too many connections, the oldest of those that have sent no request is closed.
// A second thread makes the answers that take long.
class HttpConnections {
 public:
  struct Limits {
    size_t connections = 256;
    size_t head_bytes = 16 << 10;
    int64_t late_answers = 16;  // those in the making or being taken; more are refused with 503
    nanoseconds request_time = std::chrono::seconds(1);  // for a request to arrive
    nanoseconds answer_time = std::chrono::seconds(10);  // for its answer to be taken
  };
  struct Handlers {
    // Returns the answer, or nullopt if it takes long to make. Must return quickly.
    std::function<std::optional<HttpResponse>(const HttpRequest&)> at_once;
    // Returns the answer of any other request. It is called on the second thread.
    std::function<HttpResponse(const HttpRequest&)> late;
  };

  // Returns the errors of ListenOn, and Unavailable if there is no descriptor.
  static absl::StatusOr<std::unique_ptr<HttpConnections>> Start(const std::string& address,
                                                                const Limits& limits,
                                                                Handlers handlers);
  // Closes all connections. Waits for an answer that is in the making.
  ~HttpConnections();

  int port() const { return sockets_.port; }

 private:
  struct Connection {
    enum class State {
      kReading,
      kWaiting,  // for the second thread
      kWriting,
      kClosing,  // until the peer has closed its side, so that it gets all of the answer
    };
    Descriptor fd;
    State state = State::kReading;
    bool late = false;
    MonoTime until{};     // when it is closed
    std::string bytes{};  // what was read, or what is to be written
    size_t written = 0;
  };
  using Id = uint64_t;
  using Connections = std::map<Id, Connection>;  // the oldest first

  HttpConnections(ListeningSockets sockets, Descriptor wake, const Limits& limits,
                  Handlers handlers);

  void Run();
  void Poll();
  void AcceptFrom(int listener);
  // Closes the connection that others need the place of. Returns false if there is none.
  bool MakeRoom();
  void CloseExpired();
  void TakeLateAnswers();
  // Let a connection go on; return false if it is to be closed.
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

  // The first thread's.
  Connections connections_;
  Id next_id_ = 0;
  MonoTime accepts_from_{};  // until then no connection is accepted, for lack of a descriptor

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
