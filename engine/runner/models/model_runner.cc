#include "engine/runner/models/model_runner.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "base/ceil_div.h"
#include "base/check.h"
#include "base/fault_injection.h"
#include "base/reason.h"

namespace sluice {
namespace {

void CheckInvariants(const Request& request) {
  SLUICE_CHECK(request.rows() >= 1);
  SLUICE_CHECK(request.spec->priority >= 1 && request.spec->priority <= kPriorityLevels);
  SLUICE_CHECK(request.spec->max_tokens >= 0 && request.spec->num_top >= 0);
  int64_t tokens = 0;
  for (int32_t length : request.spec->lengths) {
    SLUICE_CHECK(length >= 1);
    tokens += length;
  }
  SLUICE_CHECK(tokens == std::ssize(request.tokens));
  const int64_t width = request.spec->model->config.input_width;
  SLUICE_CHECK(request.inputs.empty() || std::ssize(request.inputs) == tokens * width);
  SLUICE_CHECK(request.types.empty() || std::ssize(request.types) == tokens);
}

absl::Status InjectRequestFault(FaultPoint point, const std::string& id) {
  if (!FaultsOn()) return absl::OkStatus();
  return InjectFault(point, [&id](std::string_view named) { return named == id; });
}

KvStats DescribeKv(const PagedScheduler& scheduler) {
  const KvCache& kv = scheduler.kv();
  const PagedScheduler::Counts& counts = scheduler.counts();
  KvStats stats{.pages = kv.pages(),
                .page_tokens = kv.page_tokens(),
                .held = kv.pages() - kv.available(),
                .idle = kv.idle(),
                .evicted = kv.evicted(),
                .preemptions = counts.preemptions,
                .prefix_tokens = counts.prefix_tokens,
                .reused_tokens = counts.reused_tokens};
  for (int kind = 0; kind < kDraftKinds; ++kind) {
    stats.drafts[kind] = {.drafted = counts.drafts[kind].drafted,
                          .accepted = counts.drafts[kind].accepted};
  }
  return stats;
}

TrafficStats DescribeTraffic(const Traffic& traffic, MonoTime now) {
  return {.lengths = traffic.lengths().Entries(),
          .batch_tokens = traffic.batch_tokens().Entries(),
          .shape_entropy_bits = traffic.batch_tokens().Entropy(),
          .length_entropy_bits = traffic.lengths().Entropy(),
          .arrivals = traffic.Rate(now)};
}

// Returns the error of a request that was made for the labels of an adapter's earlier load.
absl::Status ReplacedError(const RequestSpec& spec) {
  return absl::UnavailableError(absl::StrCat(
      "adapter ", spec.adapter, " of model ", spec.model->name,
      " was replaced during the call by an adapter with other labels; send the request again"));
}

// Adds to each bucket whether it is in the ladder, and its measured cost.
void DescribeBuckets(const Ladder& ladder, const CostState& costs,
                     std::vector<BucketStats>* buckets) {
  absl::btree_map<Bucket, double> seconds;
  for (const BucketCost& cost : costs.buckets) seconds[cost.bucket] = cost.mean_seconds;
  for (BucketStats& bucket : *buckets) {
    bucket.in_ladder = std::find(ladder.buckets().begin(), ladder.buckets().end(), bucket.bucket) !=
                       ladder.buckets().end();
    const auto it = seconds.find(bucket.bucket);
    if (it != seconds.end()) bucket.cost_seconds = it->second;
  }
}

void DescribeRequests(const RequestTable& requests, ModelStats* stats) {
  stats->running_requests = requests.running_requests();
  stats->waiting_requests = requests.waiting_requests();
  stats->running_sequences = requests.running_sequences();
  stats->steps = requests.steps();
}

// Returns the tokens per second in full batches of `largest`, or 0 if the costs are not known.
double FullRate(const CostModel& costs, const Bucket& largest) {
  const double seconds = costs.EstimateDrain(largest.tokens, largest);
  return seconds > 0 ? largest.tokens / seconds : 0;
}

void DescribeQueue(const SequenceQueue& queue, MonoTime now, ModelStats* stats) {
  stats->waiting_sequences = queue.size() - queue.running();
  stats->queued_tokens = queue.tokens();
  stats->oldest_age = now - std::min(queue.OldestWaiting(), now);
}

}  // namespace

ModelStats StatsOf(const PreparedModel& prepared, const RunnerState& state, MonoTime now) {
  ModelStats stats;
  stats.buckets = prepared.plans->Stats(&stats.forgotten_buckets);
  stats.plan_memory_bytes = prepared.plans->memory_bytes();
  stats.slot_memory = prepared.slots.front()->memory();
  if (prepared.draft != nullptr) {
    stats.slot_memory += prepared.draft->memory();
    stats.draft_weight_bytes = prepared.draft->weight_bytes();
  }
  stats.profile = prepared.info.profile;
  stats.weight_bytes = prepared.executable->weight_bytes();
  if (prepared.labels != nullptr) {
    stats.weight_bytes += prepared.labels->weight_bytes();
    stats.slot_memory += prepared.labels->memory();
  }
  stats.adapters = prepared.adapters->Stats();
  const Checkpoint& files = prepared.plans->model().checkpoint;
  int64_t& file_bytes = files.copied() ? stats.copied_bytes : stats.mapped_bytes;
  file_bytes = files.bytes();
  if (const auto& labels = prepared.plans->model().labels; labels != nullptr) {
    file_bytes += labels->checkpoint.bytes();
  }
  stats.ladder_changes.evicted = prepared.evicted;
  stats.memory_limit_effect = prepared.memory_limit_effect;
  stats.attention = prepared.executable->attention();
  stats.kernels = prepared.executable->kernels();
  stats.dense_algorithms = prepared.executable->dense_algorithms();
  stats.time_to_ready = prepared.duration;

  MutexLock lock(&state.mu);
  const Scheduler& scheduler = state.scheduler.scheduler();
  DescribeRequests(state.requests, &stats);
  DescribeQueue(scheduler.queue(), now, &stats);
  stats.queued_bytes = state.admission.bytes();
  stats.estimated_drain = std::chrono::duration_cast<nanoseconds>(
      std::chrono::duration<double>(scheduler.costs().EstimateDrain(
          state.requests.remaining_tokens(), scheduler.ladder()->largest())));
  stats.device_tokens_per_second = FullRate(scheduler.costs(), scheduler.ladder()->largest());
  stats.estimated_wait = state.admission.Wait(state.requests.running_sequences(), scheduler);
  stats.waiting_sequences += state.admission.backlog().rows() + state.requests.awaiting_rows();
  stats.costs = scheduler.costs().state();
  if (prepared.kv.keeps_pages) stats.kv = DescribeKv(state.scheduler);
  stats.traffic = DescribeTraffic(scheduler.traffic(), now);
  DescribeBuckets(*scheduler.ladder(), stats.costs, &stats.buckets);
  return stats;
}

ModelRunner::ModelRunner(RequestId first_id, std::shared_ptr<const Model> model,
                         PreparedModel prepared, const EngineOptions& options,
                         const BackendInfo& info, Clock* clock, Observer* observer,
                         SchedulerObserver* journal)
    : model_(std::move(model)),
      clock_(clock),
      observer_(observer),
      private_prefixes_(options.kv.private_prefixes),
      prepared_(std::move(prepared)),
      state_(AdmissionControl(
                 {.queue = options.queue,
                  .priority_step = std::chrono::microseconds(options.batch.priority_step_us),
                  .reuses_prefixes = prepared_.kv.keeps_pages && prepared_.kv.prefix_reuse}),
             first_id, prepared_.kv.keeps_pages, options.batch, prepared_.kv,
             std::chrono::microseconds(options.ladder.review.half_life_us), prepared_.ladder,
             prepared_.costs, journal, clock),
      history_(options.history.requests),
      loop_(model_.get(), &prepared_, options, clock, observer, &state_, &heartbeat_, &history_) {
  if (!model_->graph.takes_adapters) return;
  loader_.emplace(prepared_.adapters.get(),
                  [this](RequestId id, auto adapter) { DeliverAdapter(id, std::move(adapter)); });
}

void ModelRunner::DeliverAdapter(RequestId id,
                                 absl::StatusOr<std::shared_ptr<const ServedAdapter>> adapter) {
  MutexLock lock(&state_.mu);
  ActiveRequest* const request = state_.requests.Find(id);
  if (request == nullptr) return;  // it was cancelled, or its deadline passed
  if (adapter.ok() && !(*adapter)->Matches(*request->request.spec)) {
    adapter = ReplacedError(*request->request.spec);
  }
  if (adapter.ok()) {
    request->UseAdapter(*std::move(adapter));
    SeparatePrefixes(request);
    state_.requests.AdapterReady(request);
  } else {
    state_.requests.Fail(request, adapter.status());
  }
  state_.wake.Signal();
}

absl::Status ModelRunner::Refuse(absl::Status refusal) {
  observer_->OnRejected(model_->name, ReasonOf(refusal));
  return refusal;
}

Admission ModelRunner::Reserve(const Applicant& applicant, MonoTime now) {
  MutexLock lock(&state_.mu);
  const Admission admission = state_.admission.Reserve(applicant, state_.scheduler.scheduler(),
                                                       state_.requests.running_sequences(), now);
  if (admission.gives_place) {
    state_.requests.QueueNext(now);
    state_.wake.Signal();
  }
  return admission;
}

void ModelRunner::SeparatePrefixes(ActiveRequest* active) {
  if (!private_prefixes_ && active->adapter == nullptr) return;
  // Without pages of others, the request needs no number.
  if (private_prefixes_ && active->request.anonymous) {
    return active->SeparatePrefixes(0, /*reuse=*/false);
  }
  std::string owner = private_prefixes_ ? active->request.turn_owner() : "";
  // No name of an owner contains the zero.
  if (active->adapter != nullptr)
    owner.append(1, '\0').append(absl::StrCat(active->adapter->number));
  active->SeparatePrefixes(callers_.Of(owner), /*reuse=*/true);
}

absl::StatusOr<RequestId> ModelRunner::Submit(Request request, std::shared_ptr<Sink> sink,
                                              MonoTime received) {
  CheckInvariants(request);
  if (absl::Status fault = InjectRequestFault(FaultPoint::kAdmit, request.spec->id); !fault.ok()) {
    return Refuse(std::move(fault));
  }
  const MonoTime now = clock_->Now();
  absl::Status refusal =
      ExamineRequest(request, model_->config.max_positions, now, model_->config.only_length());
  if (!refusal.ok()) return Refuse(std::move(refusal));
  const std::string name = request.spec->adapter;
  std::string caller;  // if the request names an adapter
  std::shared_ptr<const ServedAdapter> adapter;
  if (!name.empty()) {
    caller = request.turn_owner();
    auto found = prepared_.adapters->Use(name, caller);
    if (!found.ok()) return Refuse(found.status());
    adapter = *std::move(found);
    if (adapter != nullptr && !adapter->Matches(*request.spec)) {
      return Refuse(ReplacedError(*request.spec));
    }
  }
  const Applicant applicant = ApplicantOf(request);
  // Checked before anything proportional to its tokens is allocated.
  Admission admission = Reserve(applicant, now);
  if (!admission.refusal.ok()) return Refuse(std::move(admission.refusal));
  absl::Cleanup give_back = [&] {
    MutexLock lock(&state_.mu);
    state_.admission.GiveBack(applicant.load, admission);
  };
  auto active = std::make_unique<ActiveRequest>(std::move(request), std::move(sink), received, now);
  active->admission = admission;
  if (adapter != nullptr) active->UseAdapter(std::move(adapter));
  const bool awaits = !name.empty() && active->adapter == nullptr && !NeedsNoStep(active->request);
  active->awaits_adapter = awaits;
  if (!awaits) SeparatePrefixes(active.get());
  if (NeedsNoStep(active->request)) active->AnswerWithoutStep();
  for (RequestRow& row : active->rows) {
    row.kv.ids.reserve(CeilDiv(row.MaxPositions(), prepared_.kv.page_tokens));
  }
  refusal = InjectRequestFault(FaultPoint::kQueue, active->request.spec->id);
  RequestId id = 0;
  {
    MutexLock lock(&state_.mu);
    if (refusal.ok()) refusal = state_.admission.Closed();
    if (refusal.ok()) {
      observer_->OnAdmitted(active->request);
      id = state_.requests.Admit(std::move(active));
    }
  }
  if (!refusal.ok()) return Refuse(std::move(refusal));
  std::move(give_back).Cancel();
  state_.wake.Signal();  // not under the lock, so the woken thread does not wait for it
  if (awaits) prepared_.adapters->Await(name, caller, id);
  return id;
}

absl::Status ModelRunner::StandingRefusal(std::string_view owner, int priority, MonoTime received,
                                          MonoTime deadline) {
  absl::Status refusal;
  {
    MutexLock lock(&state_.mu);
    refusal = state_.admission.Standing(OwnerKey(owner), priority, deadline, received);
  }
  return refusal.ok() ? refusal : Refuse(std::move(refusal));
}

void ModelRunner::Cancel(RequestId id) {
  MutexLock lock(&state_.mu);
  ActiveRequest* const request = state_.requests.Find(id);
  if (request == nullptr) return;
  state_.requests.Fail(request, absl::CancelledError("cancelled by the caller"));
  state_.wake.Signal();
}

absl::StatusOr<Explanation> ModelRunner::Explain(std::string_view request_id) const {
  return history_.Find(request_id);
}

ModelStats ModelRunner::Stats() const {
  ModelStats stats = StatsOf(prepared_, state_, clock_->Now());
  stats.model = model_;
  return stats;
}

ModelRunner::ReviewState ModelRunner::StateForReview() const {
  MutexLock lock(&state_.mu);
  const Scheduler& scheduler = state_.scheduler.scheduler();
  return {scheduler.ladder(), scheduler.costs(), scheduler.traffic()};
}

uint64_t ModelRunner::Arrivals() const {
  MutexLock lock(&state_.mu);
  return state_.requests.arrivals();
}

void ModelRunner::SetLadder(std::shared_ptr<const Ladder> ladder) {
  MutexLock lock(&state_.mu);
  state_.scheduler.SetLadder(std::move(ladder));
  state_.wake.Signal();
}

void ModelRunner::ReleaseWithdrawnPlans() {
  MutexLock lock(&state_.mu);
  state_.wake.Signal();
}

void ModelRunner::StopAdmission() {
  MutexLock lock(&state_.mu);
  state_.admission.Drain();
  state_.wake.Signal();
}

void ModelRunner::AwaitIdle(MonoTime deadline) {
  MutexLock lock(&state_.mu);
  while (!state_.requests.empty() || state_.ending) {
    if (clock_->Now() >= deadline) break;
    clock_->WaitUntil(&state_.idle, &state_.mu, deadline);
  }
  state_.requests.FailAll(ReasonError(Reason::kDraining, "the server is shutting down"));
  state_.wake.Signal();
}

void ModelRunner::Stop() {
  StopAdmission();
  AwaitIdle(clock_->Now());
  loop_.Stop();
}

void ModelRunner::GiveUp(const Heartbeat::Sample& sample) {
  {
    MutexLock lock(&state_.mu);
    state_.admission.Hang();
  }
  // A hang elsewhere cannot be interrupted; its requests end with the process.
  if (sample.phase != Heartbeat::Phase::kStep || !heartbeat_.Abandon(sample.serial)) return;
  RequestTable::Requests left;
  {
    MutexLock lock(&state_.mu);
    state_.ending = true;
    left = state_.requests.TakeAll(HungError());
  }
  // Requests that ended before the step hung keep their status and reply.
  for (const std::unique_ptr<ActiveRequest>& request : left) loop_.EndRequest(request.get());
  MutexLock lock(&state_.mu);
  state_.ending = false;
  lost_ = std::move(left);
  state_.idle.SignalAll();
}

}  // namespace sluice
