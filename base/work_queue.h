// A queue with a thread that serves it.
//
//   WorkQueue<std::string> lines({.max_waiting = 1000}, [&](std::string& line) { Write(line); });
//   if (!lines.Post("text")) ++lost_lines;
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace sluice {

// Thread-safe. Items are served one at a time, in the order in which they were posted. An item with
// a time joins that order when its time comes. Post allocates only when the queue grows beyond its
// longest length so far. Once the destructor runs, only the serving function may post.
template <typename Item>
class WorkQueue {
 public:
  // The destructor's treatment of the items that are still waiting.
  enum class AtEnd {
    kServe,  // serves the items that are due, and drops the others
    kDrop,
  };
  struct Options {
    size_t max_waiting = std::numeric_limits<size_t>::max();  // without the item being served
    AtEnd at_end = AtEnd::kServe;
    Clock* clock = nullptr;  // only for PostAt; not owned, outlives the queue
  };

  // `serve` is called with each item, which is destroyed when it returns.
  WorkQueue(Options options, std::function<void(Item&)> serve)
      : options_(options), serve_(std::move(serve)), thread_([this] { Loop(); }) {}

  ~WorkQueue() {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      changed_.Signal();
    }
    thread_.join();
  }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Returns false and drops `item` if `max_waiting` items wait already.
  bool Post(Item item) {
    bool wake = false;
    {
      MutexLock lock(&mu_);
      if (Waiting() >= options_.max_waiting) return false;
      due_.push_back(std::move(item));
      wake = std::exchange(idle_, false);
    }
    // The lock is free, so that the woken thread does not wait for it.
    if (wake) changed_.Signal();
    return true;
  }

  // Makes room, so that the next `items` calls of Post do not allocate. May throw std::bad_alloc.
  void Reserve(size_t items) {
    MutexLock lock(&mu_);
    due_.reserve(due_.size() + items);
    taken_.reserve(due_.capacity());  // it takes the place of due_
  }

  // Serves `item` at `time` or soon after it. Requires a clock. Items whose time has not come
  // do not count as waiting.
  void PostAt(MonoTime time, Item item) {
    MutexLock lock(&mu_);
    timed_.push_back({time, next_number_++, std::move(item)});
    std::push_heap(timed_.begin(), timed_.end(), Later);
    if (timed_.front().time == time) WakeIfIdle();
  }

  // Makes all items due, including those with later times and those posted later.
  void Hurry() {
    MutexLock lock(&mu_);
    hurried_ = true;
    WakeIfIdle();
  }

 private:
  struct Timed {
    MonoTime time;
    uint64_t number;
    Item item;
  };
  static bool Later(const Timed& a, const Timed& b) {
    return std::pair(a.time, a.number) > std::pair(b.time, b.number);
  }

  size_t Waiting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return due_.size() + taken_.size() - next_taken_;
  }
  void WakeIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (idle_) changed_.Signal();
  }

  void TakeDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (timed_.empty()) return;
    const MonoTime now = hurried_ ? MonoTime::max() : options_.clock->Now();
    while (!timed_.empty() && timed_.front().time <= now) {
      std::pop_heap(timed_.begin(), timed_.end(), Later);
      due_.push_back(std::move(timed_.back().item));
      timed_.pop_back();
    }
  }

  // Waits for an item. Returns false when the queue ends and no more items have to be served.
  bool AwaitItem() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (;;) {
      if (stopping_ && options_.at_end == AtEnd::kDrop) return false;
      TakeDue();
      if (Waiting() > 0) return true;
      if (stopping_) return false;
      idle_ = true;
      if (options_.clock == nullptr) {
        changed_.Wait(&mu_);
      } else {
        const MonoTime next = timed_.empty() ? MonoTime::max() : timed_.front().time;
        options_.clock->WaitUntil(&changed_, &mu_, next);
      }
      idle_ = false;
    }
  }

  void Loop() {
    mu_.Lock();
    while (AwaitItem()) {
      if (next_taken_ == taken_.size()) {
        taken_.clear();
        next_taken_ = 0;
        taken_.swap(due_);
      }
      {
        Item item = std::move(taken_[next_taken_++]);
        mu_.Unlock();
        serve_(item);
      }
      mu_.Lock();
    }
    mu_.Unlock();
  }

  const Options options_;
  const std::function<void(Item&)> serve_;

  Mutex mu_;
  CondVar changed_;
  // Two buffers take turns, so that no elements have to be moved: the thread serves taken_ while
  // due_ grows.
  std::vector<Item> due_ ABSL_GUARDED_BY(mu_);
  std::vector<Item> taken_ ABSL_GUARDED_BY(mu_);
  size_t next_taken_ ABSL_GUARDED_BY(mu_) = 0;     // index into taken_
  std::vector<Timed> timed_ ABSL_GUARDED_BY(mu_);  // a heap, the earliest first
  uint64_t next_number_ ABSL_GUARDED_BY(mu_) = 0;
  bool hurried_ ABSL_GUARDED_BY(mu_) = false;
  bool idle_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // last: starts when all else is built
};

// A bounded queue of long calls, so that the posting thread need not wait for them. The destructor
// drops the calls that have not started.
class JobQueue final : public WorkQueue<std::function<void()>> {
 public:
  explicit JobQueue(size_t max_waiting)
      : WorkQueue({.max_waiting = max_waiting, .at_end = AtEnd::kDrop},
                  [](std::function<void()>& job) { job(); }) {}
};

}  // namespace sluice
