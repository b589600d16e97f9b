#include "engine/runner/models/served_model.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/status_macros.h"
#include "engine/runner/models/memory_limit.h"

namespace sluice {
namespace {

absl::StatusOr<std::unique_ptr<Journal>> OpenJournal(const std::shared_ptr<const Model>& model,
                                                     const EngineOptions& options,
                                                     const PreparedModel& prepared,
                                                     Observer* observer) {
  if (options.history.journal.empty()) return nullptr;
  return Journal::Open(
      options.history.journal,
      {.model = model.get(),
       .backend = &prepared.info,
       .half_life = std::chrono::microseconds(options.ladder.review.half_life_us),
       .batch = options.batch,
       .costs = prepared.costs.state(),
       .most_bytes = options.history.journal_bytes},
      {.notice = [model, observer](std::string_view notice) { observer->OnNotice(*model, notice); },
       .write_failed = [observer] { observer->OnWriteFailed(WrittenFile::kJournal); },
       .lines_lost = [observer](int64_t lines) { observer->OnJournalLinesLost(lines); }});
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedModel>> ServedModel::Create(
    RequestId first_id, std::shared_ptr<const Model> model, const EngineOptions& options,
    Backend* backend, Clock* clock, Observer* observer, const WarmUpRoom& room) {
  SLUICE_ASSIGN_OR_RETURN(PreparedModel prepared,
                          WarmUp(model, options, backend, clock, observer, room));
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Journal> journal,
                          OpenJournal(model, options, prepared, observer));
  std::optional<LadderFile> file = std::move(prepared.file);
  LadderChoice kept = std::move(prepared.ladder_kept);
  return std::unique_ptr<ServedModel>(new ServedModel(
      first_id, std::move(model), std::move(prepared), std::move(file), std::move(kept),
      std::move(journal), options, backend->info(), clock, observer));
}

ServedModel::ServedModel(RequestId first_id, std::shared_ptr<const Model> model,
                         PreparedModel prepared, std::optional<LadderFile> file, LadderChoice kept,
                         std::unique_ptr<Journal> journal, const EngineOptions& options,
                         const BackendInfo& info, Clock* clock, Observer* observer)
    : journal_(std::move(journal)),
      runner_(first_id, std::move(model), std::move(prepared), options, info, clock, observer,
              journal_.get()),
      later_plans_(&runner_, Apply(kept, options.ladder)->memory_limit_bytes, observer),
      reviewer_(&runner_, &later_plans_, options, std::move(file), std::move(kept), clock,
                observer) {
  if (options.watchdog.hang_us == 0) return;
  watchdog_.emplace(std::chrono::microseconds(options.watchdog.hang_us), &runner_.heartbeat(),
                    clock, [this, observer](const Heartbeat::Sample& sample, const Hang& hang) {
                      observer->OnHang(*runner_.model(), hang);
                      runner_.GiveUp(sample);
                    });
}

void ServedModel::StartWriting() {
  reviewer_.StartWriting();
  if (journal_ != nullptr) journal_->StartWriting();
}

void ServedModel::HandOverJournal() {
  if (journal_ != nullptr) journal_->StopWriting();
}

ModelStats ServedModel::Stats() const {
  ModelStats stats = runner_.Stats();
  const int64_t at_warm_up = stats.ladder_changes.evicted;
  reviewer_.Describe(&stats);
  stats.ladder_changes.evicted += at_warm_up + later_plans_.evicted();
  stats.memory_limit_effect =
      JoinedSentences(stats.memory_limit_effect, later_plans_.limit_effect());
  const auto largest = std::find_if(stats.buckets.rbegin(), stats.buckets.rend(),
                                    [](const BucketStats& each) { return each.in_ladder; });
  if (largest == stats.buckets.rend()) return stats;
  stats.memory_limit_effect =
      JoinedSentences(stats.memory_limit_effect,
                      UnmetLimitText(stats.ladder_options.memory_limit_bytes, largest->bucket,
                                     largest->memory_bytes + largest->activation_bytes));
  return stats;
}

}  // namespace sluice
