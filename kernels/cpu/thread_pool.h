// The pool of compute threads.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "base/cgroup.h"

namespace sluice::kernels {

// Runs ranges of indices on a fixed set of threads; the calling thread is one of them.
//
// Concurrency contract
//   * ParallelFor may be called from several threads. The pool's threads work for one caller at a
//     time. Other callers run their ranges on their own threads until the pool's threads are free.
//     So a model that is warmed up, or has long steps, does not delay short steps of another one.
//   * It returns when every index is processed; the workers' writes happen-before its return.
//   * `body` must not call ParallelFor on the same pool. If it throws, no thread begins another
//     range, and the call throws the first exception once all threads have left `body`.
//   * A call allocates nothing. Idle workers sleep after a short spin.
//   * The division of indices into ranges never influences results: kernels split over rows, heads
//     and output columns, never over a sum.
class ThreadPool {
 public:
  // Requires threads >= 1. The caller is one of them: ThreadPool(1) starts no thread.
  // A call with fewer than `least_shared` multiply-adds runs on the calling thread only.
  explicit ThreadPool(int threads, int64_t least_shared = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Lets only the first `threads` threads, the caller included, take part in later calls. The
  // others sleep. The number is clamped to [1, threads()]. Thread-safe.
  void SetRunning(int threads);
  // Returns how many threads take part. It may change during a call, so scratch is sized by
  // threads().
  int running() const;

  // Calls body(begin, end, worker) for disjoint ranges that cover [0, n), each at most `grain` (>=
  // 1) long. `worker` is in [0, threads()) and unique among the concurrent calls of one
  // ParallelFor, so that it can index per-worker scratch. Does nothing if n <= 0.
  void ParallelFor(int64_t n, int64_t grain,
                   absl::FunctionRef<void(int64_t begin, int64_t end, int worker)> body);

  // The same for a call with about `multiply_adds` multiply-adds. If these are fewer than
  // `least_shared`, the caller does all of them, as one range.
  void ParallelFor(int64_t n, int64_t grain, int64_t multiply_adds,
                   absl::FunctionRef<void(int64_t begin, int64_t end, int worker)> body);

 private:
  struct State;
  const int64_t least_shared_;
  std::unique_ptr<State> state_;
};

// The multiply-adds that a thread does in the time to wake another one, some 10 us. The ops of a
// small model's step are all smaller than this.
inline constexpr int64_t kMinShared = 1 << 17;

// Returns the number of CPUs in the affinity mask, at least 1.
int AffinityCpus();

// Returns the number of compute threads that fit the machine: the smaller of the CPUs in the
// affinity mask and the cgroup's CPU quota (v1 or v2, rounded up), at least 1.
int AvailableCpus(FileReader read = ReadSystemFile);

}  // namespace sluice::kernels
