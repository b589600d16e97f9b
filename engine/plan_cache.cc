#include "engine/plan_cache.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"

namespace sluice {

void CachedPlan::Record(const BatchTrace& batch) {
  batches_.fetch_add(1, std::memory_order_relaxed);
  if (batch.lookup == Lookup::kHit) hits_.fetch_add(1, std::memory_order_relaxed);
  useful_tokens_.fetch_add(batch.useful_tokens, std::memory_order_relaxed);
  computed_tokens_.fetch_add(batch.computed_tokens, std::memory_order_relaxed);
  sequences_.fetch_add(batch.sequences, std::memory_order_relaxed);
}

BucketStats CachedPlan::Stats() const {
  const int64_t batches = batches_.load(std::memory_order_relaxed);
  return {.bucket = plan_->bucket(),
          .ready = true,
          .batches = batches,
          .hits = hits_.load(std::memory_order_relaxed),
          .useful_tokens = useful_tokens_.load(std::memory_order_relaxed),
          .computed_tokens = computed_tokens_.load(std::memory_order_relaxed),
          .bucket_tokens = batches * plan_->bucket().tokens,
          .sequences = sequences_.load(std::memory_order_relaxed),
          .memory_bytes = plan_->memory_bytes()};
}

PlanCache::PlanCache(const Model* model, const ExecutableModel* executable, Clock* clock,
                     Observer* observer)
    : model_(model), executable_(executable), clock_(clock), observer_(observer), thread_([this] {
        Run();
      }) {}

PlanCache::~PlanCache() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

absl::Status PlanCache::Prepare(const Bucket& bucket) {
  PrepareLater(bucket);
  MutexLock lock(&mu_);
  while (!preparations_[bucket].done) changed_.Wait(&mu_);
  return preparations_[bucket].status;
}

void PlanCache::PrepareLater(const Bucket& bucket) {
  MutexLock lock(&mu_);
  if (!preparations_.try_emplace(bucket).second) return;
  requested_.push_back(bucket);
  changed_.SignalAll();
}

void PlanCache::Remove(const Bucket& bucket) {
  MutexLock lock(&mu_);
  const auto it = preparations_.find(bucket);
  SLUICE_CHECK(it != preparations_.end() && it->second.done);
  preparations_.erase(it);
  Publish();
}

std::vector<BucketStats> PlanCache::Stats() const {
  MutexLock lock(&mu_);
  std::vector<BucketStats> stats;
  for (const auto& [bucket, preparation] : preparations_) {
    stats.push_back(preparation.plan ? preparation.plan->Stats() : BucketStats{.bucket = bucket});
  }
  return stats;
}

int64_t PlanCache::memory_bytes() const {
  MutexLock lock(&mu_);
  int64_t bytes = 0;
  for (const auto& [bucket, preparation] : preparations_) {
    if (preparation.plan) bytes += preparation.plan->plan().memory_bytes();
  }
  return bytes;
}

void PlanCache::Run() {
  mu_.Lock();
  while (true) {
    while (requested_.empty() && !stopping_) changed_.Wait(&mu_);
    if (stopping_) break;
    const Bucket bucket = requested_.front();
    requested_.pop_front();
    mu_.Unlock();

    const MonoTime start = clock_->Now();
    absl::StatusOr<std::unique_ptr<Plan>> plan = executable_->Prepare(bucket);
    observer_->OnPlan({.model = model_,
                       .bucket = bucket,
                       .ok = plan.ok(),
                       .duration = clock_->Now() - start,
                       .memory_bytes = plan.ok() ? (*plan)->memory_bytes() : 0});

    mu_.Lock();
    Preparation& preparation = preparations_[bucket];
    preparation.done = true;
    preparation.status = plan.status();
    if (plan.ok()) {
      preparation.plan = std::make_shared<CachedPlan>(*std::move(plan));
      Publish();
    }
    changed_.SignalAll();
  }
  mu_.Unlock();
}

void PlanCache::Publish() {
  auto snapshot = std::make_shared<Snapshot>();
  for (const auto& [bucket, preparation] : preparations_) {
    if (preparation.plan) snapshot->push_back(preparation.plan);
  }
  snapshot_ = std::move(snapshot);
  version_.fetch_add(1, std::memory_order_release);
}

PlanCache::Found PlanCache::Reader::Find(const Bucket& wanted) {
  if (cache_->version_.load(std::memory_order_acquire) != version_) {
    MutexLock lock(&cache_->mu_);
    snapshot_ = cache_->snapshot_;
    version_ = cache_->version_.load(std::memory_order_relaxed);
  }
  if (snapshot_ == nullptr) return {};
  const auto it = std::partition_point(
      snapshot_->begin(), snapshot_->end(), [&](const std::shared_ptr<CachedPlan>& cached) {
        return !cached->plan().bucket().Fits(wanted.tokens, wanted.sequences);
      });
  if (it == snapshot_->end()) return {};
  const bool hit = (*it)->plan().bucket() == wanted;
  return {.plan = it->get(), .lookup = hit ? Lookup::kHit : Lookup::kMissNotCaptured};
}

}  // namespace sluice
