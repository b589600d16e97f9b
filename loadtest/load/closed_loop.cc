#include <memory>

#include "base/mutex.h"
#include "loadtest/load/run.h"

namespace sluice::load {
namespace {

using std::chrono::steady_clock;

// A call number identifies a lane. A lane has one call in flight at a time and owns its records.
class ClosedLoop final : public CallSink {
 public:
  ClosedLoop(const RunOptions& options, const PayloadPool& pool,
             absl::Span<const uint32_t> payloads, int concurrency, nanoseconds duration,
             AnswerBook* answers, Live* live)
      : pool_(pool),
        payloads_(payloads),
        duration_(duration),
        options_(options),
        live_(*live),
        judge_(options.deadline, answers),
        lanes_(concurrency) {}

  PhaseData Run(const Channels& channels) {
    start_ = steady_clock::now();
    const SystemTime until =
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<SystemTime::duration>(duration_ + options_.drain);
    const CpuMeter cpu;
    std::unique_ptr<Transport> transport =
        options_.streaming ? MakeStreamTransport(channels, options_.streams, until, this)
                           : MakeUnaryTransport(channels, until, this);
    transport_ = transport.get();
    running_ = std::ssize(lanes_);
    for (int64_t lane = 0; lane < std::ssize(lanes_); ++lane) Send(lane);
    {
      const MutexLock lock(&mu_);
      while (running_ > 0) ended_.Wait(&mu_);
    }
    PhaseData data;
    data.cpu = cpu.Read();
    transport.reset();
    for (const std::vector<CallRecord>& lane : lanes_) {
      data.calls.insert(data.calls.end(), lane.begin(), lane.end());
    }
    data.duration = duration_;
    data.errors = judge_.errors();
    return data;
  }

  void OnAnswer(int64_t lane, const Answer& answer) override {
    CallRecord& record = lanes_[lane].back();
    record.done = steady_clock::now() - start_;
    record.outcome = judge_.Decide(record, answer);
    live_.done.fetch_add(1, std::memory_order_relaxed);
    const bool failed = record.outcome != Outcome::kOk && record.outcome != Outcome::kDeadline;
    if (failed) live_.missed.fetch_add(1, std::memory_order_relaxed);
    // An error ends the lane, so that a failing server is not flooded with calls.
    const bool goes_on =
        !failed || (options_.send_on_refusal && record.outcome == Outcome::kRejected);
    if (record.done < duration_ && goes_on) {
      Send(lane);
      return;
    }
    const MutexLock lock(&mu_);
    if (--running_ == 0) ended_.SignalAll();
  }

  void OnPart(int64_t call) override {
    CallRecord& record = lanes_[call].back();
    if (record.first == nanoseconds{0}) record.first = steady_clock::now() - start_;
  }

 private:
  void Send(int64_t lane) {
    const uint32_t payload = payloads_[next_.fetch_add(1) % payloads_.size()];
    CallRecord record;
    record.scheduled = record.sent = steady_clock::now() - start_;
    record.payload = payload;
    record.tokens = pool_.payloads()[payload].tokens;
    lanes_[lane].push_back(record);
    live_.sent.fetch_add(1, std::memory_order_relaxed);
    std::optional<SystemTime> deadline;
    if (options_.deadline.count() > 0) {
      deadline = std::chrono::system_clock::now() +
                 std::chrono::duration_cast<SystemTime::duration>(options_.deadline);
    }
    transport_->Send(lane, pool_.payloads()[payload].bytes, deadline);
  }

  const PayloadPool& pool_;
  const absl::Span<const uint32_t> payloads_;
  const nanoseconds duration_;
  const RunOptions& options_;
  Live& live_;
  Judge judge_;
  std::vector<std::vector<CallRecord>> lanes_;
  std::atomic<uint64_t> next_{0};
  steady_clock::time_point start_;
  Transport* transport_ = nullptr;

  Mutex mu_;
  CondVar ended_;
  int64_t running_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace

PhaseData RunClosedLoop(const RunOptions& options, const Channels& channels,
                        const PayloadPool& pool, absl::Span<const uint32_t> payloads,
                        int concurrency, nanoseconds duration, AnswerBook* answers, Live* live) {
  return ClosedLoop(options, pool, payloads, concurrency, duration, answers, live).Run(channels);
}

}  // namespace sluice::load
