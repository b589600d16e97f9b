// Processes many items concurrently and delivers the results in input order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace sluice::client {

// `next` returns the items, then nothing. `work` runs on `concurrency` threads. `done` receives the
// results in order. Calls of `next` do not overlap, and calls of `done` do not overlap. `next` may
// block without delaying items that are already being processed. At most 16 * concurrency results
// are held back for an earlier one.
template <typename Item, typename Result>
class OrderedRun {
 public:
  OrderedRun(std::function<std::optional<Item>()> next, std::function<Result(Item)> work,
             std::function<void(Result)> done)
      : next_(std::move(next)), work_(std::move(work)), done_(std::move(done)) {}

  // Returns after the last result has been delivered.
  void Run(int concurrency) {
    window_ = int64_t{16} * concurrency;
    std::vector<std::thread> threads;
    threads.reserve(concurrency);
    for (int i = 0; i < concurrency; ++i) threads.emplace_back([this] { Work(); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  void Work() {
    while (auto numbered = Take()) {
      Result result = work_(std::move(numbered->second));
      absl::MutexLock lock(&results_mu_);
      waiting_.emplace(numbered->first, std::move(result));
      for (auto first = waiting_.begin(); first != waiting_.end() && first->first == delivered_;
           first = waiting_.erase(first)) {
        done_(std::move(first->second));
        ++delivered_;
      }
    }
  }

  std::optional<std::pair<int64_t, Item>> Take() {
    absl::MutexLock lock(&items_mu_);
    const auto room = [this]() ABSL_SHARED_LOCKS_REQUIRED(results_mu_, items_mu_) {
      return taken_ - delivered_ < window_;
    };
    results_mu_.LockWhen(absl::Condition(&room));
    results_mu_.Unlock();
    std::optional<Item> item = ended_ ? std::nullopt : next_();
    ended_ = !item.has_value();
    if (ended_) return std::nullopt;
    return std::make_pair(taken_++, *std::move(item));
  }

  const std::function<std::optional<Item>()> next_;
  const std::function<Result(Item)> work_;
  const std::function<void(Result)> done_;
  int64_t window_ = 0;

  absl::Mutex items_mu_ ABSL_ACQUIRED_BEFORE(results_mu_);
  int64_t taken_ ABSL_GUARDED_BY(items_mu_) = 0;
  bool ended_ ABSL_GUARDED_BY(items_mu_) = false;

  absl::Mutex results_mu_;
  int64_t delivered_ ABSL_GUARDED_BY(results_mu_) = 0;
  std::map<int64_t, Result> waiting_ ABSL_GUARDED_BY(results_mu_);
};

}  // namespace sluice::client
