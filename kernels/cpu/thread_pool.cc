#include "kernels/cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/loop_count.h"

namespace sluice::kernels {
namespace {

// About 20 us: longer than the gaps between the ops of a step, shorter than waking a thread twice.
constexpr int kSpins = 500;

thread_local int64_t loops_of_this_thread = 0;

// Tells the processor that this thread spins.
void Pause() {
#ifdef __aarch64__
  asm volatile("yield");
#else
  __builtin_ia32_pause();
#endif
}

template <typename Done>
bool SpinUntil(Done done) {
  for (int i = 0; i < kSpins; ++i) {
    if (done()) return true;
    Pause();
  }
  return done();
}

}  // namespace

// The shared state of the threads. A job is open while workers may enter it. The caller publishes
// the job, opens the gate, advances the epoch to wake the workers, works itself, closes the gate
// and waits for the workers inside to leave. A worker that wakes too late finds the gate closed and
// never sees the job.
struct ThreadPool::State {
  // Bit 30 is set if the gate is closed. The bits below count the workers inside and, briefly,
  // workers that are about to find the gate closed.
  static constexpr int32_t kClosed = 1 << 30;

  explicit State(int threads) : count(threads), running(threads) {}

  // Starts the workers. If one cannot be started, throws; the destructor ends the others.
  void Start() {
    workers.reserve(count - 1);
    for (int worker = 1; worker < count; ++worker) {
      workers.emplace_back([this, worker] { WorkerLoop(worker); });
    }
  }

  ~State() {
    stopping.store(true, std::memory_order_relaxed);
    SetRunning(count);
    Wake();
    for (std::thread& worker : workers) worker.join();
  }

  void Wake() {
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }

  void SetRunning(int threads) {
    running.store(std::clamp(threads, 1, count), std::memory_order_release);
    running.notify_all();
  }

  // Sleeps while the worker does not take part in calls.
  void AwaitPart(int worker) {
    for (int now = running.load(std::memory_order_acquire); worker >= now;
         now = running.load(std::memory_order_acquire)) {
      running.wait(now, std::memory_order_acquire);
    }
  }

  void WorkerLoop(int worker) {
    uint32_t seen = 0;
    while (true) {
      AwaitPart(worker);
      const auto advanced = [&] { return epoch.load(std::memory_order_acquire) != seen; };
      if (!SpinUntil(advanced)) epoch.wait(seen, std::memory_order_acquire);
      seen = epoch.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_relaxed)) return;
      if (worker >= running.load(std::memory_order_acquire)) continue;
      if ((gate.fetch_add(1, std::memory_order_acquire) & kClosed) == 0) Work(worker);
      if (gate.fetch_sub(1, std::memory_order_release) == (kClosed | 1)) gate.notify_all();
    }
  }

  void Work(int worker) {
    try {
      for (int64_t begin = next.fetch_add(grain, std::memory_order_relaxed); begin < n;
           begin = next.fetch_add(grain, std::memory_order_relaxed)) {
        (*body)(begin, std::min(begin + grain, n), worker);
      }
    } catch (...) {
      next.store(n, std::memory_order_relaxed);
      if (!failed.exchange(true, std::memory_order_relaxed)) failure = std::current_exception();
    }
  }

  // Runs the published job from `begin` on. Throws the first exception of its body. Requires
  // call_mu.
  void Run(int64_t begin) {
    next.store(begin, std::memory_order_relaxed);
    gate.fetch_and(~kClosed, std::memory_order_release);
    Wake();
    Work(0);
    gate.fetch_or(kClosed, std::memory_order_relaxed);
    const auto empty = [&] { return gate.load(std::memory_order_acquire) == kClosed; };
    while (!SpinUntil(empty)) {
      const int32_t inside = gate.load(std::memory_order_acquire);
      if (inside != kClosed) gate.wait(inside, std::memory_order_acquire);
    }
    if (!failed.load(std::memory_order_relaxed)) return;
    failed.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(failure, nullptr));
  }

  const int count;
  std::atomic<int> running;  // how many threads take part in calls, the caller included
  // The caller that the workers work for holds it. It is a std::mutex because the thread sanitizer
  // does not see into the packaged Abseil.
  std::mutex call_mu;

  // The job. It is written under call_mu while the gate is closed and no worker is inside, and read
  // by the workers inside.
  const absl::FunctionRef<void(int64_t, int64_t, int)>* body = nullptr;
  int64_t n = 0;
  int64_t grain = 1;

  // The first exception of the job's body. The thread that sets `failed` writes it, and the caller
  // reads it once no worker is inside.
  std::atomic<bool> failed{false};
  std::exception_ptr failure;

  alignas(64) std::atomic<int64_t> next{0};  // first index not yet taken
  alignas(64) std::atomic<int32_t> gate{kClosed};
  alignas(64) std::atomic<uint32_t> epoch{0};
  std::atomic<bool> stopping{false};
  std::vector<std::thread> workers;  // last, because the threads use the members above
};

ThreadPool::ThreadPool(int threads, int64_t least_shared) : least_shared_(least_shared) {
  SLUICE_CHECK(threads >= 1);
  state_ = std::make_unique<State>(threads);
  state_->Start();
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const { return state_->count; }

void ThreadPool::SetRunning(int threads) { state_->SetRunning(threads); }

int ThreadPool::running() const { return state_->running.load(std::memory_order_relaxed); }

int64_t LoopsOfThisThread() { return loops_of_this_thread; }

void ThreadPool::ParallelFor(int64_t n, int64_t grain,
                             absl::FunctionRef<void(int64_t begin, int64_t end, int worker)> body) {
  SLUICE_CHECK(grain >= 1);
  if (n <= 0) return;
  ++loops_of_this_thread;
  State& state = *state_;
  const bool alone = running() == 1 || n <= grain;
  std::unique_lock<std::mutex> workers(state.call_mu, std::defer_lock);
  int64_t begin = 0;
  for (; begin < n && (alone || !workers.try_lock()); begin += grain) {
    body(begin, std::min(begin + grain, n), 0);
  }
  if (begin >= n) return;
  state.body = &body;
  state.n = n;
  state.grain = grain;
  state.Run(begin);
}

void ThreadPool::ParallelFor(int64_t n, int64_t grain, int64_t multiply_adds,
                             absl::FunctionRef<void(int64_t begin, int64_t end, int worker)> body) {
  ParallelFor(n, multiply_adds < least_shared_ ? std::max(n, grain) : grain, body);
}

int AffinityCpus() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) return std::max(1, CPU_COUNT(&mask));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

int AvailableCpus(FileReader read) {
  const int cpus = AffinityCpus();
  return std::min(cpus, CgroupCpus(read).value_or(cpus));
}

}  // namespace sluice::kernels
