#include "engine/journal/journal_replay.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/schedule/step_budget.h"

namespace sluice {
namespace {

// Replays a journal; has one overload for each kind of line.
class Replayer {
 public:
  explicit Replayer(JournalReplay* result) : result_(result) {}

  absl::Status operator()(const JournalStart& start) {
    scheduler_.reset();  // the next ladder line creates a new one
    waiting_.clear();
    start_ = start;
    ++result_->runs;
    return absl::OkStatus();
  }

  absl::Status operator()(const JournalLadder& line) {
    if (!start_) return absl::InvalidArgumentError("a ladder comes before the first start");
    auto ladder = std::make_shared<const Ladder>(line.ladder);
    if (!scheduler_) {
      CostModel costs;
      costs.Restore(start_->costs);
      scheduler_.emplace(start_->batch, start_->half_life, std::move(ladder), std::move(costs),
                         nullptr);
      return absl::OkStatus();
    }
    const Ladder& present = *scheduler_->ladder();
    if (ladder->padded() != present.padded() || ladder->largest() != present.largest()) {
      return absl::InvalidArgumentError("the ladder has a different layout or largest bucket");
    }
    scheduler_->SetLadder(std::move(ladder));
    return absl::OkStatus();
  }

  absl::Status operator()(const JournalPush& push) {
    SLUICE_RETURN_IF_ERROR(RequireScheduler());
    if (!FitsAlone(push.sequence.tokens)) return TooLarge();
    auto [it, added] = waiting_.try_emplace(push.sequence.ticket);
    if (!added) return absl::InvalidArgumentError("the ticket is already waiting");
    it->second = std::make_unique<WaitingSequence>(push.sequence);
    if (!push.arrival) {
      scheduler_->Return(it->second.get());
      return absl::OkStatus();
    }
    ++result_->arrivals;
    scheduler_->Arrive(it->second.get());
    return absl::OkStatus();
  }

  absl::Status operator()(const JournalRemove& remove) {
    SLUICE_RETURN_IF_ERROR(RequireScheduler());
    const auto it = waiting_.find(remove.ticket);
    if (it == waiting_.end()) return absl::InvalidArgumentError("the ticket is not waiting");
    scheduler_->Remove(it->second.get());
    waiting_.erase(it);
    return absl::OkStatus();
  }

  absl::Status operator()(const JournalRevise& revise) {
    SLUICE_RETURN_IF_ERROR(RequireScheduler());
    const auto it = waiting_.find(revise.ticket);
    if (it == waiting_.end()) return absl::InvalidArgumentError("the ticket is not waiting");
    if (!FitsAlone(revise.next.tokens)) return TooLarge();
    scheduler_->Revise(it->second.get(), revise.next);
    return absl::OkStatus();
  }

  absl::Status operator()(const JournalDecide& line) {
    SLUICE_RETURN_IF_ERROR(RequireScheduler());
    if (scheduler_->MustYield(line.at.available_pages) != nullptr) {
      return absl::InvalidArgumentError("fewer pages than the running sequences need");
    }
    const RunLimits limits = RunLimitsOf(start_->batch, scheduler_->ladder()->largest());
    if (scheduler_->queue().running() > limits.sequences) {
      return absl::InvalidArgumentError("more running sequences than fit in a step");
    }
    const BatchDecision decision = scheduler_->Decide(line.at, &batch_);
    ++result_->decisions;
    std::vector<uint64_t> tickets;
    if (decision.launch) {
      for (const WaitingSequence* sequence : batch_) tickets.push_back(sequence->ticket);
    }
    if (decision != line.decision || tickets != line.tickets) {
      return absl::FailedPreconditionError(
          absl::StrCat("the scheduler decides differently: ", Describe(decision), " instead of ",
                       Describe(line.decision)));
    }
    for (const uint64_t ticket : tickets) waiting_.erase(ticket);
    if (decision.launch) ++result_->batches;
    return absl::OkStatus();
  }

  absl::Status operator()(const JournalObserve& line) {
    SLUICE_RETURN_IF_ERROR(RequireScheduler());
    scheduler_->Observe(line.step, line.seconds);
    return absl::OkStatus();
  }

  absl::Status operator()(const JournalDropped& line) {
    return absl::DataLossError(absl::StrCat(line.lines, " lines were dropped"));
  }

 private:
  absl::Status RequireScheduler() const {
    if (scheduler_) return absl::OkStatus();
    return absl::InvalidArgumentError("an operation comes before start and ladder");
  }

  bool FitsAlone(int32_t tokens) const {
    return scheduler_->ladder()->Choose({tokens, 1, tokens}) != nullptr;
  }
  static absl::Status TooLarge() {
    return absl::InvalidArgumentError("the sequence is larger than every bucket");
  }

  static std::string Describe(const BatchDecision& decision) {
    if (!decision.launch) return "to wait";
    return absl::StrCat("a batch of ", decision.size.tokens, " tokens of ", decision.size.sequences,
                        " sequences in ", decision.bucket.tokens);
  }

  JournalReplay* const result_;
  std::optional<JournalStart> start_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<WaitingSequence>> waiting_;
  std::optional<Scheduler> scheduler_;  // declared after the sequences that wait in it
  std::vector<WaitingSequence*> batch_;
};

}  // namespace

absl::StatusOr<JournalReplay> ReplayJournal(JournalReader* journal) {
  JournalReplay result;
  Replayer replayer(&result);
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const std::optional<JournalEntry> entry, journal->Next());
    if (!entry) return result;
    const absl::Status status = std::visit(replayer, *entry);
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("line ", journal->line(), ": ", status.message()));
    }
  }
}

}  // namespace sluice
