#include "engine/plans/plan_cache.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

int32_t Mean(int64_t sum, int64_t count) {
  return static_cast<int32_t>(std::max<int64_t>((sum + count / 2) / count, 1));
}

// Returns the interval of kReplayBounds that has the time.
size_t IntervalOf(nanoseconds replay) {
  const double seconds = std::chrono::duration<double>(replay).count();
  return std::ranges::lower_bound(kReplayBounds, seconds) - kReplayBounds.begin();
}

// Adds the counts of `bucket` to `sum`.
void AddCounts(const BucketStats& bucket, BucketStats* sum) {
  sum->batches += bucket.batches;
  sum->hits += bucket.hits;
  for (size_t i = 0; i < bucket.misses.size(); ++i) sum->misses[i] += bucket.misses[i];
  sum->useful_tokens += bucket.useful_tokens;
  sum->computed_tokens += bucket.computed_tokens;
  sum->bucket_tokens += bucket.bucket_tokens;
  sum->sequences += bucket.sequences;
  sum->replay += bucket.replay;
  for (size_t i = 0; i < bucket.replays.size(); ++i) sum->replays[i] += bucket.replays[i];
}

}  // namespace

void BucketUse::Record(const BatchTrace& batch) {
  lookups_[static_cast<int>(batch.lookup)].fetch_add(1, std::memory_order_relaxed);
  replays_[IntervalOf(batch.replay)].fetch_add(1, std::memory_order_relaxed);
  replay_ns_.fetch_add(batch.replay.count(), std::memory_order_relaxed);
  useful_tokens_.fetch_add(batch.useful_tokens, std::memory_order_relaxed);
  computed_tokens_.fetch_add(batch.computed_tokens, std::memory_order_relaxed);
  sequences_.fetch_add(batch.sequences, std::memory_order_relaxed);
  last_used_.store(batch.start.time_since_epoch().count(), std::memory_order_relaxed);
}

BucketStats BucketUse::Stats(const Bucket& bucket) const {
  BucketStats stats{
      .bucket = bucket,
      .hits = lookups_[static_cast<int>(Lookup::kHit)].load(std::memory_order_relaxed),
      .useful_tokens = useful_tokens_.load(std::memory_order_relaxed),
      .computed_tokens = computed_tokens_.load(std::memory_order_relaxed),
      .sequences = sequences_.load(std::memory_order_relaxed),
      .replay = nanoseconds(replay_ns_.load(std::memory_order_relaxed)),
      .last_used = MonoTime(MonoTime::duration(last_used_.load(std::memory_order_relaxed)))};
  stats.batches = stats.hits;
  for (int i = 0; i < kLookups; ++i) {
    if (Lookup{i} == Lookup::kHit) continue;
    stats.misses[i] = lookups_[i].load(std::memory_order_relaxed);
    stats.batches += stats.misses[i];
  }
  for (size_t i = 0; i < replays_.size(); ++i) {
    stats.replays[i] = replays_[i].load(std::memory_order_relaxed);
  }
  stats.bucket_tokens = stats.batches * bucket.tokens;
  return stats;
}

PlanCache::PlanCache(const Model* model, const ExecutableModel* executable, Clock* clock,
                     Observer* observer)
    : model_(model), executable_(executable), clock_(clock), observer_(observer) {}

absl::Status PlanCache::Known(const Bucket& bucket) const {
  const auto it = entries_.find(bucket);
  if (it == entries_.end() || it->second.withdrawn() || it->second.awaited ||
      absl::IsResourceExhausted(it->second.status)) {
    return absl::FailedPreconditionError("not prepared");
  }
  return it->second.status;
}

absl::Status PlanCache::Prepare(const Bucket& bucket) {
  MutexLock preparing(&prepare_mu_);
  {
    MutexLock lock(&mu_);
    const absl::Status known = Known(bucket);
    if (!absl::IsFailedPrecondition(known)) return known;
  }
  const MonoTime start = clock_->Now();
  absl::StatusOr<std::unique_ptr<Plan>> plan = executable_->Prepare(bucket);
  const nanoseconds duration = clock_->Now() - start;
  observer_->OnPlan({.model = model_,
                     .bucket = bucket,
                     .ok = plan.ok(),
                     .duration = duration,
                     .memory_bytes = plan.ok() ? (*plan)->memory_bytes() : 0});
  const int64_t activation_bytes = executable_->activation_bytes(bucket);
  MutexLock lock(&mu_);
  Entry& entry = entries_[bucket];
  entry.prepare_time = duration;
  entry.status = plan.status();
  entry.awaited = false;
  if (plan.ok()) {
    entry.plan = std::make_shared<const CachedPlan>(*std::move(plan), entry.use);
    entry.activation_bytes = activation_bytes;
  }
  Publish();
  return entry.status;
}

absl::Status PlanCache::PublishEager(const Bucket& bucket) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, executable_->Eager(bucket));
  MutexLock lock(&mu_);
  Entry& entry = entries_[bucket];
  entry.plan = std::make_shared<const CachedPlan>(std::move(plan), entry.use);
  entry.activation_bytes = executable_->activation_bytes(bucket);
  Publish();
  return absl::OkStatus();
}

void PlanCache::Await(std::span<const Bucket> buckets) {
  MutexLock lock(&mu_);
  for (const Bucket& bucket : buckets) {
    const auto [it, added] = entries_.try_emplace(bucket);
    SLUICE_CHECK(added);
    it->second.awaited = true;
  }
  Publish();
}

std::vector<Bucket> PlanCache::Awaited() const {
  MutexLock lock(&mu_);
  std::vector<Bucket> buckets;
  for (const auto& [bucket, use] : snapshot_->awaited) buckets.push_back(bucket);
  return buckets;
}

std::optional<Bucket> PlanCache::MostRequested() const {
  MutexLock lock(&mu_);
  std::optional<Bucket> most;
  int64_t most_lookups = -1;
  for (const auto& [bucket, use] : snapshot_->awaited) {
    if (use->awaited_lookups() <= most_lookups) continue;
    most = bucket;
    most_lookups = use->awaited_lookups();
  }
  return most;
}

void PlanCache::Withdraw(const Bucket& bucket) {
  MutexLock lock(&mu_);
  const auto it = entries_.find(bucket);
  SLUICE_CHECK(it != entries_.end() && !it->second.withdrawn());
  it->second.plan = nullptr;
  it->second.awaited = false;
  it->second.status = absl::OkStatus();
  ForgetLongestUnused();
  Publish();
}

void PlanCache::ForgetLongestUnused() {
  auto oldest = entries_.end();
  size_t withdrawn = 0;
  MonoTime oldest_use = MonoTime::max();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (!it->second.withdrawn()) continue;
    ++withdrawn;
    const MonoTime used = it->second.use->Stats(it->first).last_used;
    if (used >= oldest_use) continue;
    oldest_use = used;
    oldest = it;
  }
  if (withdrawn <= kMaxWithdrawn) return;
  AddCounts(oldest->second.use->Stats(oldest->first), &forgotten_);
  entries_.erase(oldest);
}

std::vector<BucketStats> PlanCache::Stats(BucketStats* forgotten) const {
  std::vector<BucketStats> stats = Counts(forgotten);
  for (BucketStats& bucket : stats) {
    if (bucket.batches == 0) continue;
    const Bucket mean = {.tokens = Mean(bucket.useful_tokens, bucket.batches),
                         .sequences = Mean(bucket.sequences, bucket.batches)};
    bucket.exact_activation_bytes = bucket.batches * executable_->activation_bytes(mean);
  }
  return stats;
}

std::vector<BucketStats> PlanCache::Counts(BucketStats* forgotten) const {
  MutexLock lock(&mu_);
  if (forgotten != nullptr) *forgotten = forgotten_;
  std::vector<BucketStats> stats;
  stats.reserve(entries_.size());
  for (const auto& [bucket, entry] : entries_) {
    BucketStats& of_bucket = stats.emplace_back(entry.use->Stats(bucket));
    of_bucket.prepare_time = entry.prepare_time;
    of_bucket.activation_bytes = entry.activation_bytes;
    of_bucket.ready = entry.plan != nullptr;
    if (of_bucket.ready) of_bucket.memory_bytes = entry.plan->plan().memory_bytes();
  }
  return stats;
}

int64_t PlanCache::memory_bytes() const {
  MutexLock lock(&mu_);
  int64_t bytes = 0;
  for (const auto& cached : snapshot_->plans) bytes += cached->plan().memory_bytes();
  return bytes;
}

int64_t PlanCache::ladder_bytes() const {
  MutexLock lock(&mu_);
  int64_t plans = 0, activations = 0;
  for (const auto& [bucket, entry] : entries_) {
    if (entry.plan == nullptr) continue;
    plans += entry.plan->plan().memory_bytes();
    activations = std::max(activations, entry.activation_bytes);
  }
  return plans + activations;
}

void PlanCache::Publish() {
  auto snapshot = std::make_shared<Snapshot>();
  for (const auto& [bucket, entry] : entries_) {
    if (entry.plan != nullptr) snapshot->plans.push_back(entry.plan);
    if (entry.withdrawn()) snapshot->withdrawn.push_back(bucket);
    if (entry.awaited) snapshot->awaited.emplace_back(bucket, entry.use);
  }
  snapshot_ = std::move(snapshot);
  version_.fetch_add(1, std::memory_order_release);
}

void PlanCache::Reader::Refresh() {
  if (!stale()) return;
  MutexLock lock(&cache_->mu_);
  snapshot_ = cache_->snapshot_;
  version_ = cache_->version_.load(std::memory_order_relaxed);
}

// Returns the outcome of a lookup that found the ladder's choice. Requires that it accepts the
// step.
Lookup LookupOf(const Plan& plan, const StepNeeds& needs) {
  if (plan.eager()) return Lookup::kMissMemory;
  return plan.Captures(needs) ? Lookup::kHit : Lookup::kMissGuard;
}

PlanCache::Found PlanCache::Reader::Find(const Bucket& wanted, const StepNeeds& needs, Cost cost) {
  Refresh();
  if (snapshot_ == nullptr) return {};
  const auto& plans = snapshot_->plans;
  const auto it = std::partition_point(plans.begin(), plans.end(), [&](const auto& cached) {
    return cached->plan().bucket() < wanted;
  });
  if (it != plans.end() && (*it)->plan().bucket() == wanted) {
    const Plan& plan = (*it)->plan();
    if (plan.Accepts(needs)) return {.plan = it->get(), .lookup = LookupOf(plan, needs)};
    return Fallback(needs, cost, Lookup::kMissGuard);
  }
  const auto& awaited = snapshot_->awaited;
  const auto requested = std::partition_point(
      awaited.begin(), awaited.end(), [&](const auto& entry) { return entry.first < wanted; });
  if (requested != awaited.end() && requested->first == wanted) requested->second->CountLookup();
  const auto& withdrawn = snapshot_->withdrawn;
  const bool evicted = std::binary_search(withdrawn.begin(), withdrawn.end(), wanted);
  return Fallback(needs, cost, evicted ? Lookup::kMissEvicted : Lookup::kMissNotPrepared);
}

PlanCache::Found PlanCache::Reader::Fallback(const StepNeeds& needs, Cost cost, Lookup miss) const {
  Found found{.plan = nullptr, .lookup = Lookup::kMissOverCapacity};
  std::pair<double, int32_t> least;
  for (const auto& cached : snapshot_->plans) {
    const Bucket& bucket = cached->plan().bucket();
    if (!bucket.Fits(needs.size)) continue;
    if (!cached->plan().Accepts(needs)) {
      if (found.plan == nullptr) found.lookup = Lookup::kMissGuard;
      continue;
    }
    const std::pair<double, int32_t> price(cost(bucket), bucket.tokens);
    if (found.plan != nullptr && price >= least) continue;
    found = {.plan = cached.get(), .lookup = miss};
    least = price;
  }
  return found;
}

}  // namespace sluice
