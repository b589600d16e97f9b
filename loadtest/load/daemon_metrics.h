// Reads the daemon's counts of a phase from its metrics page.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/periodic_thread.h"

namespace sluice::load {

// The counts of client and server. If the client gives up on a call, the server still counts its
// own outcome. Therefore only the good answers must agree: the server's count is at least the
// client's count, and at most that plus the calls that ended differently for the client.
struct Reconciliation {
  int64_t client_ok = 0;
  int64_t client_other = 0;
  int64_t server_ok = 0;
  int64_t server_other = 0;     // admitted calls that ended otherwise
  int64_t server_rejected = 0;  // calls that were not admitted

  bool Agrees() const { return server_ok >= client_ok && server_ok <= client_ok + client_other; }
};

struct BucketShare {
  std::string bucket;
  double tokens = 0;       // the capacity
  double batches = 0;      // batches that used the bucket in the phase
  double bucket_fill = 0;  // useful / capacity tokens since the daemon started
};

// The values of the page at one moment, summed over the other labels.
struct Reading {
  double at_s = 0;  // since the start of the phase
  double waiting = 0, running = 0, queued_tokens = 0;
  double useful_tokens = 0, computed_tokens = 0, bucket_tokens = 0, batches = 0;
  double ok = 0, other = 0, rejected = 0;
  double captures = 0;
  double reused_tokens = 0, prompt_tokens = 0;  // of prompts that began to run
  std::map<std::string, BucketShare> buckets;
};

// Returns InvalidArgument if `page` is not a metrics page of Sluice with a model `model`.
absl::StatusOr<Reading> ParseReading(const std::string& page, const std::string& model);

// Reads the page at `address`, HOST:PORT, once.
absl::StatusOr<Reading> ReadMetrics(const std::string& address, const std::string& model);

// Reads the page once a second on a thread of its own, from construction until Stop().
class MetricsWatch {
 public:
  // `address` is HOST:PORT.
  MetricsWatch(std::string address, std::string model);

  // Ends the thread and returns the readings, from the first at construction to the last at this
  // call, or the error of one of these two. Readings between them may be missing, because a server
  // under load may be slow to answer. May be called once.
  absl::StatusOr<std::vector<Reading>> Stop();

 private:
  absl::Status Take();

  const std::string address_, model_;
  const MonoTime start_;
  std::vector<Reading> readings_;         // used only by the thread while it runs
  const absl::Status first_;              // of the first reading
  std::optional<PeriodicThread> thread_;  // declared last, so that it ends first
};

// Requires that `first` and `last` enclose the phase with all its calls.
Reconciliation Reconcile(const Reading& first, const Reading& last, int64_t client_ok,
                         int64_t client_other);

}  // namespace sluice::load
