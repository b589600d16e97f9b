// The adapters of one served model.
//
// Every known adapter is callable, but only a part of them is in memory. A request for an adapter
// that is not in memory waits until AdapterLoader has loaded it. Loads evict other adapters. The
// table's memory never exceeds its limit: it counts the loaded adapters, the evicted ones that
// requests still use, and the load in progress.
//
//   auto adapter = table.Use("law", caller);        // nullptr: it is not in memory
//   if (*adapter == nullptr) table.Await("law", caller, id);
//   ...
//   table.LoadNext(deliver);                        // calls deliver(id, adapter)
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/engine_stats.h"
#include "engine/model/adapter.h"
#include "engine/request.h"

namespace sluice {

class AdapterTable;

// The counts of an adapter since it became known. Thread-safe.
struct AdapterUse {
  std::atomic<int64_t> requests = 0, tokens = 0;  // of requests that ended
  std::atomic<int64_t> loads = 0, evictions = 0;
};

// An adapter that requests use. A request keeps it until it ends.
struct ServedAdapter {
  ServedAdapter(std::string own_name, uint64_t own_number,
                std::unique_ptr<const LoadedAdapter> packed,
                const std::optional<AdapterHead>& own_head = std::nullopt);
  int64_t bytes() const;
  // Returns whether it has the classifier that the request was made for.
  bool Matches(const RequestSpec& spec) const;
  // Counts a request that used it and ended.
  void CountRequest(int64_t tokens) const {
    ++use->requests;
    use->tokens += tokens;
  }
  ~ServedAdapter();
  ServedAdapter(const ServedAdapter&) = delete;
  ServedAdapter& operator=(const ServedAdapter&) = delete;

  const std::string name;
  // Different for each load: KV pages of another load with the same name are not reused.
  const uint64_t number;
  std::unique_ptr<const LoadedAdapter> weights;
  std::shared_ptr<const ClassifierConfig> head;  // nullptr: it has no classifier of its own
  std::optional<Classifier> classifier;
  AdapterTable* table = nullptr;  // counts its memory
  std::shared_ptr<AdapterUse> use;
};

// Thread-safe. The pointers are not owned and outlive the table. The table outlives its served
// adapters.
//
// For kOwned after its last use, an adapter belongs to the caller that used it last. A load for a
// caller evicts adapters that belong to no caller, its own, and adapters of callers that own more
// bytes than it would own with the load. If it owns none, it evicts any. Of these it evicts
// adapters that belong to no caller first, then adapters of the caller that owns the most, then the
// adapter that was used least recently. It evicts an adapter that requests use only if no adapter
// is idle: its requests finish on it, and the load waits until they have.
class AdapterTable {
 public:
  static constexpr std::chrono::minutes kOwned{1};

  // `limit` is the most bytes.
  AdapterTable(std::string model, const ExecutableModel* executable, int64_t limit, Clock* clock)
      : model_(std::move(model)), executable_(executable), limit_(limit), clock_(clock) {}

  enum class Room { kFree, kEvictIdle };
  // Reads an adapter and makes it known, in place of the one with its name. Loads it if the memory
  // is free, or can be freed by evicting idle adapters; otherwise the next request loads it. The
  // source is kept. Returns ResourceExhausted if there would be more than kMaxAdapters or if the
  // adapter exceeds the limit, and the errors of reading and packing.
  absl::Status Load(const AdapterSource& source, Room room);
  // Forgets an adapter. Requests that use it finish on it, requests that wait for it fail. Returns
  // NotFound as HeadOf does.
  absl::Status Unload(std::string_view name);

  // Returns the names of the known adapters in order.
  std::vector<std::string> Names() const;
  // Returns the adapter's own classifier, nullptr if it has none, or NotFound, which lists the
  // known adapters.
  absl::StatusOr<std::shared_ptr<const ClassifierConfig>> HeadOf(std::string_view name) const;
  int64_t limit() const { return limit_; }
  // Returns the bytes in use. At most limit().
  int64_t bytes() const;
  AdapterTableStats Stats() const;

  // Returns the adapter for a request of `caller`, nullptr if it is not in memory, or NotFound.
  absl::StatusOr<std::shared_ptr<const ServedAdapter>> Use(std::string_view name,
                                                           std::string_view caller);
  // Delivers the adapter to the request later, from LoadNext. Callers take turns. Ends the process
  // if there is no memory.
  void Await(std::string_view name, std::string_view caller, RequestId id) noexcept;

  using Delivery =
      absl::FunctionRef<void(RequestId, absl::StatusOr<std::shared_ptr<const ServedAdapter>>)>;
  enum class Progress {
    kIdle,    // no request waits
    kNoRoom,  // a load needs the memory of adapters that requests use
    kDone,    // call again
  };
  // Does the next part of the work for waiting requests: at most one load. Called by one thread.
  Progress LoadNext(Delivery deliver);

  // changes() differs once something has happened that LoadNext may wait for. AwaitChange returns
  // when it differs from `seen`, or false after Stop.
  uint64_t changes() const;
  bool AwaitChange(uint64_t seen) const;
  void Stop();

 private:
  friend struct ServedAdapter;

  struct Entry {
    AdapterSource source;
    uint64_t version = 0;  // of the source
    int64_t most_bytes = 0;
    std::shared_ptr<const ClassifierConfig> head;
    std::shared_ptr<const ServedAdapter> loaded;  // nullptr: not in memory
    std::string owner;                            // the caller that used it last
    uint64_t last_use = 0;                        // in the order of uses
    MonoTime last_time{};
    std::shared_ptr<AdapterUse> use = std::make_shared<AdapterUse>();
    bool named = false;              // whether its statistics are listed by its name
    AdapterCounts before_named;      // the part of its counts that forgotten_ has
    std::vector<RequestId> waiting;  // if there are any, it is in wanted_
  };
  // A load that requests wait for.
  struct Wanted {
    std::string name;
    std::string caller;  // of the first request
    uint64_t round;      // callers take turns: each has one load in a round
  };
  using Evicted = std::vector<std::shared_ptr<const ServedAdapter>>;

  absl::Status NotFound(std::string_view name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<int64_t> BytesOf(const Adapter& adapter) const;
  // Reserves memory for a load. Returns false if there is not enough.
  bool Reserve(int64_t bytes, bool evict, bool evict_used, std::string_view caller);
  // Returns the next adapter to evict, or nullptr.
  Entry* Victim(int64_t bytes, bool evict_used, std::string_view caller)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Evict(Entry* entry, Evicted* evicted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::shared_ptr<ServedAdapter>> Pack(const Adapter& adapter);
  // Puts a packed adapter into the table, in place of a reservation.
  void Count(const std::shared_ptr<ServedAdapter>& served, int64_t reserved, Entry* entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveBack(int64_t reserved);
  void Free(int64_t bytes);
  // Loads the adapter in the reserved memory, which it gives back if it returns an error. Returns
  // OK without a load if the adapter has changed.
  absl::Status LoadReserved(const AdapterSource& source, uint64_t version, int64_t reserved);
  void Changed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string model_;
  const ExecutableModel* const executable_;
  const int64_t limit_;
  Clock* const clock_;
  std::atomic<uint64_t> last_number_ = 0;

  mutable Mutex mu_;
  mutable CondVar changed_;
  uint64_t changes_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t last_version_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_use_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t round_ ABSL_GUARDED_BY(mu_) = 0;  // of the load that was begun last
  // The last rounds of callers, if these have not passed.
  std::map<std::string, uint64_t, std::less<>> rounds_ ABSL_GUARDED_BY(mu_);
  int64_t used_ ABSL_GUARDED_BY(mu_) = 0;           // with reservations
  int64_t leaving_ ABSL_GUARDED_BY(mu_) = 0;        // the part of used_ that requests still use
  std::deque<Wanted> wanted_ ABSL_GUARDED_BY(mu_);  // by rounds, then by arrival
  size_t named_ ABSL_GUARDED_BY(mu_) = 0;
  // The counts of adapters that were unloaded, and of others from before they were named.
  AdapterCounts forgotten_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<RequestId, absl::Status>> failed_ ABSL_GUARDED_BY(mu_);  // to be delivered
  std::map<std::string, Entry, std::less<>> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
