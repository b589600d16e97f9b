// Runs one of the daemons that `sluice-bench buckets` compares.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/options.h"
#include "loadtest/bench/daemon/buckets_workload.h"
#include "loadtest/bench/daemon/daemon.h"
#include "loadtest/load/answers.h"
#include "loadtest/load/daemon_metrics.h"

namespace sluice::loadtest {

struct ArmOptions {
  std::string name;
  std::string group;  // arms of one group are variants of one contestant; the best one counts
  PolicyKind policy;
  StrategyKind strategy;
  int64_t max_queue_delay_us = 0;
  int32_t max_buckets = 0;  // 0 for the default
};

// Returns the contestants, the adaptive ladder last. Without `strategies`: each baseline with and
// without a delay, and the packed policy on the geometric and on the adaptive ladder. With
// `strategies`: the packed policy with one bucket and on the ladder of each strategy.
std::vector<ArmOptions> BucketArms(bool strategies);

// The figures of one phase of traffic.
struct Measurement {
  bool ran = false;  // false if the arm cannot carry the load
  double sequences_per_s = 0;
  double tokens_per_s = 0;  // useful tokens: tokens of the answered prompts
  double p50_ms = 0, p99_ms = 0;
  int64_t calls = 0;
  int64_t failed = 0;          // not answered correctly, including `wrong`
  int64_t wrong = 0;           // the answer differs from the answer to the same request by itself
  double lateness_p99_ms = 0;  // of the client
  // These are counted by the daemon.
  double batches = 0, useful_tokens = 0, computed_tokens = 0, bucket_tokens = 0;
  double captures = 0;
  double cpu_s = 0;
};

class Arm {
 public:
  // Starts `sluiced` with the model in directory `model`. The ladder is reviewed only on request,
  // so that no review runs while another arm is measured.
  static absl::StatusOr<std::unique_ptr<Arm>> Start(const ArmOptions& options,
                                                    const std::string& sluiced,
                                                    const std::string& model);

  // Runs a phase. The figures cover the calls due after `warm_up`; the daemon's counts cover the
  // whole phase. Requires that `answers` has an answer for each payload of the pool.
  absl::StatusOr<Measurement> Measure(const load::PayloadPool& pool, const Traffic& traffic,
                                      load::nanoseconds warm_up, load::AnswerBook* answers);

  // Sends every payload of the pool, one at a time.
  absl::Status RunOneByOne(const load::PayloadPool& pool, load::AnswerBook* answers);

  absl::StatusOr<admin::v1::RunReviewResponse> Review() const;
  absl::StatusOr<admin::v1::ModelBuckets> Buckets() const;

  const ArmOptions& options() const { return options_; }
  const client::Connection& connection() const { return daemon_->connection(); }

 private:
  struct Account {
    load::Reading reading;
    absl::Duration cpu;
  };

  Arm(ArmOptions options, std::unique_ptr<Daemon> daemon);
  absl::StatusOr<Account> Read() const;

  const ArmOptions options_;
  const std::unique_ptr<Daemon> daemon_;
};

}  // namespace sluice::loadtest
