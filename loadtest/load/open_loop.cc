#include <sys/prctl.h>
#include <time.h>

#include <cerrno>
#include <memory>
#include <thread>

#include "loadtest/load/run.h"

namespace sluice::load {
namespace {

using std::chrono::steady_clock;

// The time between the start of the phase's threads and the start of the phase, in which the
// senders get ready.
constexpr nanoseconds kLead = std::chrono::milliseconds(20);

void SleepUntil(steady_clock::time_point when) {
  // This wakes within the timer slack of the thread, unlike the sleep of the standard library.
  const auto since_epoch = std::chrono::duration_cast<nanoseconds>(when.time_since_epoch());
  timespec until{};
  until.tv_sec = since_epoch.count() / 1'000'000'000;
  until.tv_nsec = since_epoch.count() % 1'000'000'000;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

// A record belongs to its sender until Send, then to the thread that gets the answer. After the
// last answer, all records belong to Run().
class OpenLoop final : public CallSink {
 public:
  OpenLoop(const RunOptions& options, const PayloadPool& pool, absl::Span<const Arrival> arrivals,
           absl::Span<const uint32_t> payloads, nanoseconds duration, AnswerBook* answers,
           Live* live)
      : options_(options),
        pool_(pool),
        duration_(duration),
        live_(*live),
        judge_(options.deadline, answers),
        records_(arrivals.size()) {
    for (size_t i = 0; i < arrivals.size(); ++i) {
      records_[i].scheduled = arrivals[i].at;
      records_[i].payload = payloads[i];
      records_[i].tokens = arrivals[i].tokens;
    }
  }

  PhaseData Run(const Channels& channels) {
    start_ = steady_clock::now() + kLead;
    system_start_ = std::chrono::system_clock::now() + kLead;
    PhaseData data;
    const SystemTime until = AtSystem(duration_ + options_.drain);
    std::unique_ptr<Transport> transport =
        options_.streaming ? MakeStreamTransport(channels, options_.streams, until, this)
                           : MakeUnaryTransport(channels, until, this);
    const CpuMeter cpu;
    std::vector<std::thread> senders;
    senders.reserve(options_.senders);
    for (int i = 0; i < options_.senders; ++i) {
      senders.emplace_back([this, i, &transport] { SendShare(i, *transport); });
    }
    SleepUntil(start_ + duration_);
    data.cpu = cpu.Read();
    for (std::thread& sender : senders) sender.join();
    transport.reset();  // waits for the answers
    data.calls = std::move(records_);
    data.duration = duration_;
    data.errors = judge_.errors();
    return data;
  }

  void OnAnswer(int64_t call, const Answer& answer) override {
    CallRecord& record = records_[call];
    record.done = Now();
    record.outcome = judge_.Decide(record, answer);
    in_flight_.fetch_sub(1, std::memory_order_relaxed);
    live_.done.fetch_add(1, std::memory_order_relaxed);
    if (record.outcome != Outcome::kOk) live_.missed.fetch_add(1, std::memory_order_relaxed);
  }

  void OnPart(int64_t call) override {
    CallRecord& record = records_[call];
    if (record.first == nanoseconds{0}) record.first = Now();
  }

 private:
  nanoseconds Now() const { return steady_clock::now() - start_; }

  SystemTime AtSystem(nanoseconds since_start) const {
    return system_start_ + std::chrono::duration_cast<SystemTime::duration>(since_start);
  }

  void SendShare(int64_t first, Transport& transport) {
    prctl(PR_SET_TIMERSLACK, 1UL);
    for (int64_t i = first; i < std::ssize(records_); i += options_.senders) {
      CallRecord& record = records_[i];
      if (record.scheduled > Now()) SleepUntil(start_ + record.scheduled);
      record.sent = Now();
      live_.sent.fetch_add(1, std::memory_order_relaxed);
      if (in_flight_.fetch_add(1, std::memory_order_relaxed) >= options_.max_in_flight) {
        HoldBack(record);
        continue;
      }
      std::optional<SystemTime> deadline;
      if (options_.deadline.count() > 0) deadline = AtSystem(record.scheduled + options_.deadline);
      transport.Send(i, pool_.payloads()[record.payload].bytes, deadline);
    }
  }

  void HoldBack(CallRecord& record) {
    in_flight_.fetch_sub(1, std::memory_order_relaxed);
    record.done = record.sent;
    record.outcome = Outcome::kNotSent;
    live_.done.fetch_add(1, std::memory_order_relaxed);
    live_.missed.fetch_add(1, std::memory_order_relaxed);
  }

  const RunOptions& options_;
  const PayloadPool& pool_;
  const nanoseconds duration_;
  Live& live_;
  Judge judge_;
  std::vector<CallRecord> records_;
  std::atomic<int64_t> in_flight_{0};
  steady_clock::time_point start_;
  SystemTime system_start_;
};

}  // namespace

PhaseData RunOpenLoop(const RunOptions& options, const Channels& channels, const PayloadPool& pool,
                      absl::Span<const Arrival> arrivals, absl::Span<const uint32_t> payloads,
                      nanoseconds duration, AnswerBook* answers, Live* live) {
  return OpenLoop(options, pool, arrivals, payloads, duration, answers, live).Run(channels);
}

}  // namespace sluice::load
