// Simulates random generation on virtual time: arrivals, lengths, shared prefixes, cancellations,
// failing and very long steps, little memory. A simulated device checks the contents of the pages.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "engine/schedule/paged_scheduler.h"
#include "engine/schedule/step_budget.h"
#include "engine/schedule/step_shape.h"
#include "gtest/gtest.h"
#include "tests/engine/schedule/simulated_generation.h"

namespace sluice {
namespace {

using simulated::Load;
using simulated::Memory;
using simulated::Own;
using simulated::Sequence;

// Counts of events over all runs. An event that never happened was not tested.
struct Coverage {
  int64_t preemptions = 0, reused = 0, evicted = 0, removed = 0, cancelled = 0, failed = 0,
          ahead = 0, continued_ahead = 0, given_back = 0, copied = 0, accepted = 0, rejected = 0,
          drafts_cut = 0, awaited_drafts = 0;
};

class Simulation {
 public:
  Simulation(uint64_t seed, Coverage* coverage)
      : random_(seed),
        load_(&random_),
        limits_(RunLimitsOf(load_.batch, load_.ladder->largest())),
        scheduler_(load_.batch, load_.paged, std::chrono::minutes(1), load_.ladder, CostModel(),
                   nullptr),
        memory_(load_.paged),
        coverage_(*coverage) {
    for (int32_t i = 0; i < 3; ++i) beginnings_.push_back(RandomTokens(load_.longest));
  }

  void Run() {
    while (load_.arrivals > 0 || !live_.empty()) {
      Arrivals();
      CancelSome();
      Step();
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_TRUE(scheduler_.scheduler().queue().empty());
    EXPECT_EQ(scheduler_.kv().available(), load_.paged.pages);
    coverage_.preemptions += scheduler_.counts().preemptions;
    coverage_.reused += scheduler_.counts().reused_tokens;
    coverage_.evicted += scheduler_.kv().evicted();
  }

 private:
  int32_t Below(int32_t limit) {
    return static_cast<int32_t>(random_() % static_cast<uint64_t>(limit));
  }
  bool OneIn(int32_t n) { return Below(n) == 0; }
  std::vector<int32_t> RandomTokens(int32_t count) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (int32_t& token : tokens) token = Below(1000);
    return tokens;
  }

  void Arrivals() {
    for (; load_.arrivals > 0 && next_arrival_ <= now_; --load_.arrivals) {
      Arrive();
      next_arrival_ += std::chrono::microseconds(Below(static_cast<int32_t>(load_.gap_us)));
    }
  }

  void Arrive() {
    Sequence& sequence = live_.emplace_back();
    sequence.ticket = ++tickets_;
    sequence.priority = OneIn(4) ? 1 + Below(kPriorityLevels) : kDefaultPriority;
    sequence.queued = next_arrival_;
    sequence.kv.root = OneIn(8) ? 1 : 0;
    const int32_t prompt = 1 + Below(load_.longest);
    const int32_t shared = Below(prompt + 1);
    const std::vector<int32_t>& beginning = beginnings_[static_cast<size_t>(Below(3))];
    for (int32_t i = 0; i < prompt; ++i) {
      sequence.Append(i < shared ? beginning[static_cast<size_t>(i)] : Below(1000));
    }
    sequence.to_draw = OneIn(4) ? 0 : 1 + Below(load_.longest - prompt + 1);
    sequence.generates = sequence.to_draw > 1;
    sequence.sampled_end = sequence.to_draw > 0;
    sequence.reuse = !OneIn(4);
    sequence.scored = !sequence.reuse && OneIn(2);
    sequence.acceptance = Below(11) / 10.0;
    if (!OneIn(4)) sequence.kv.shared = std::min(shared, prompt - 1);
    sequence.arrived_at = steps_;
    const int32_t total = prompt + sequence.to_draw;
    const int64_t alone = total / limits_.chunk_tokens + 1 + sequence.to_draw;
    for (Sequence& other : live_) {
      if (&other == &sequence) continue;
      other.steps_of_all += alone;
      sequence.steps_of_all += alone_[other.ticket];
    }
    sequence.steps_of_all += alone_[sequence.ticket] = alone;
    scheduler_.Arrive(&sequence);
  }

  void CancelSome() {
    if (live_.empty() || !OneIn(10)) return;
    auto it = std::next(live_.begin(), Below(static_cast<int32_t>(live_.size())));
    if (it->in_step) {
      it->cancelled = true;
      return;
    }
    scheduler_.Remove(&*it);
    live_.erase(it);
    ++coverage_.removed;
  }

  void Step() {
    const BatchDecision decision = scheduler_.Decide(now_, load_.arrivals == 0, &batch_);
    ASSERT_TRUE(decision.launch || batch_.empty());
    for (WaitingSequence* sequence : batch_) Own(sequence)->in_step = true;
    CheckDrafts();
    CheckPages();
    if (::testing::Test::HasFatalFailure()) return;
    if (decision.launch) {
      RunStep(decision);
      while (ahead_.launch && !::testing::Test::HasFatalFailure()) {
        batch_.swap(batch_ahead_);
        RunStep(std::exchange(ahead_, {}), /*was_ahead=*/true);
      }
    } else {
      for (const Sequence& sequence : live_) ASSERT_FALSE(sequence.running);
      ASSERT_TRUE(load_.arrivals > 0 || live_.empty());
      now_ = std::min(decision.wait_until, next_arrival_);
    }
  }

  // Checks that drafted tokens delay no other sequence: none waits, and only a limited number of
  // sequences, which all decode, share the step.
  void CheckDrafts() {
    for (WaitingSequence* sequence : batch_) {
      const int32_t drafted = Own(sequence)->drafted;
      ASSERT_LE(drafted, Own(sequence)->drafts);
      if (drafted < Own(sequence)->drafts) ++coverage_.drafts_cut;
      if (drafted == 0) continue;
      ASSERT_TRUE(scheduler_.scheduler().queue().empty());
      ASSERT_LE(std::ssize(batch_), load_.paged.draft_sequences);
      for (WaitingSequence* other : batch_) {
        ASSERT_TRUE(other->running && other->generates);
        ASSERT_EQ(other->tokens, 1 + Own(other)->drafted);
        ASSERT_EQ(other->sampled_rows, other->tokens);
      }
    }
  }

  // Returns whether the sequence ends with its current step if the step succeeds.
  static bool EndsWithStep(const Sequence& sequence) {
    return sequence.later_tokens == 0 && sequence.to_draw <= 1;
  }

  // Decides the next step while a step runs. Sequences of that step continue in it, or wait. It is
  // not known how a sequence with drafted tokens continues.
  void DecideAhead() {
    const auto has_drafts = [](WaitingSequence* sequence) { return Own(sequence)->drafted > 0; };
    if (OneIn(4) || std::ranges::any_of(batch_, has_drafts)) return;
    std::vector<bool> ends;  // by sequence of batch_
    std::vector<Sequence*> returned;
    for (WaitingSequence* sequence : batch_) {
      Sequence* const own = Own(sequence);
      ends.push_back(own->is_void() || EndsWithStep(*own));
      if (ends.back()) continue;
      returned.push_back(own);
      scheduler_.ReturnAhead(own, own->later_tokens == 0);
    }
    const SequenceQueue& queue = scheduler_.scheduler().queue();
    const bool alone = queue.size() == std::ssize(returned);
    const bool may_draft = alone && queue.size() <= load_.paged.draft_sequences;
    const int32_t available = scheduler_.kv().available();
    const bool misses_pages = available < load_.paged.step_pages ||
                              scheduler_.scheduler().MustYield(available) != nullptr;
    const bool decodes = queue.running() > 0;
    ahead_ = scheduler_.Decide(now_, load_.arrivals == 0, &batch_ahead_, /*ahead=*/true);
    ASSERT_TRUE(ahead_.launch || batch_ahead_.empty());
    // A step waits for drafts only if no other sequence waits.
    if (decodes && !misses_pages && !ahead_.launch) {
      ASSERT_TRUE(may_draft);
      ++coverage_.awaited_drafts;
    }
    for (WaitingSequence* sequence : batch_ahead_) {
      Sequence* const own = Own(sequence);
      ASSERT_EQ(own->drafted, 0);
      const bool in_both = std::exchange(own->in_step, true);
      ASSERT_EQ(own->state() == SequenceState::kRunningAhead, in_both);
    }
    if (ahead_.launch) {
      ++coverage_.ahead;
      if (ahead_.trigger != Trigger::kFull) {
        const bool any_running = std::any_of(batch_ahead_.begin(), batch_ahead_.end(),
                                             [](const auto* member) { return member->running; });
        ASSERT_TRUE(any_running);
      }
      for (size_t i = 0; i < batch_.size(); ++i) Own(batch_[i])->ends = ends[i];
      CheckBudget(ahead_, batch_ahead_);
    }
    for (Sequence* sequence : returned) {
      if (sequence->state() == SequenceState::kRunningAhead) {
        ++coverage_.continued_ahead;
      } else {
        scheduler_.Recall(sequence);
      }
    }
    CheckPages();
  }

  void RunStep(const BatchDecision& decision, bool was_ahead = false) {
    ++steps_;
    if (!was_ahead) CheckBudget(decision, batch_);
    CheckNoSequenceStarves(was_ahead ? steps_ - 1 : steps_);
    for (WaitingSequence* sequence : batch_) {
      if (memory_.CopyTail(*Own(sequence))) ++coverage_.copied;
    }
    for (WaitingSequence* sequence : batch_) {
      if (!Own(sequence)->is_void()) memory_.ExpectComputed(*Own(sequence));
    }
    for (WaitingSequence* sequence : batch_) {
      if (!Own(sequence)->is_void()) memory_.Compute(*Own(sequence));
    }
    if (::testing::Test::HasFatalFailure()) return;
    const StepShape shape = ShapeOf(batch_, decision.bucket);
    DecideAhead();
    if (::testing::Test::HasFatalFailure()) return;
    const int64_t stall = OneIn(50) ? 100 : 1;
    now_ += std::chrono::microseconds(stall * (100 + 10 * decision.size.tokens));
    Arrivals();
    CancelSome();
    const bool failed = OneIn(100);
    if (failed) ++coverage_.failed;
    if (!failed) scheduler_.Observe(shape, 1e-4 + 1e-5 * shape.computed_tokens);
    for (WaitingSequence* sequence : batch_) EndStep(Own(sequence), failed);
  }

  void EndStep(Sequence* sequence, bool failed) {
    const bool goes_on = sequence->state() == SequenceState::kRunningAhead;
    const int32_t later_tokens =
        goes_on ? sequence->in_progress.later_tokens : sequence->later_tokens;
    sequence->in_step = goes_on;
    if (sequence->is_void()) return End(sequence);
    if (sequence->cancelled) ++coverage_.cancelled;
    if (failed || sequence->cancelled) return End(sequence);
    if (sequence->drafted > 0) return EndDrafts(sequence);
    scheduler_.Computed(sequence);
    if (later_tokens == 0) {
      sequence->scored = false;
      if (sequence->to_draw == 0 || --sequence->to_draw == 0) return End(sequence);
      sequence->Append(Below(1000));
    }
    sequence->drafts = std::min(Below(6), std::max(sequence->to_draw - 1, 0));
    scheduler_.Return(sequence);
  }

  // Accepts some of the drafted tokens. The sequence may end after any of them.
  void EndDrafts(Sequence* sequence) {
    const int32_t accepted = Below(sequence->drafted + 1);
    coverage_.accepted += accepted;
    coverage_.rejected += sequence->drafted - accepted;
    for (int32_t i = 0; i <= accepted; ++i) sequence->Append(Below(1000));
    sequence->to_draw -= 1 + accepted;
    memory_.Accept(*sequence, accepted);
    sequence->rejected = sequence->drafted - accepted;
    scheduler_.Computed(sequence);
    if (sequence->to_draw == 0 || OneIn(50)) return End(sequence);
    sequence->drafts = std::min(Below(6), std::max(sequence->to_draw - 1, 0));
    scheduler_.Return(sequence);
  }

  void End(Sequence* sequence) {
    scheduler_.End(sequence);
    if (sequence->state() == SequenceState::kEnding) return;
    live_.remove_if([&](const Sequence& other) { return &other == sequence; });
  }

  // Checks that a page that is written to has one holder, that a shared page was published, and
  // that sequences that wait to begin hold no pages.
  void CheckPages() {
    std::map<int32_t, int32_t> holders;
    std::set<int32_t> copied;
    for (const Sequence& sequence : live_) {
      const std::span<const int32_t> ids = sequence.kv.ids;
      for (const int32_t page : ids.subspan(sequence.kv.released)) ++holders[page];
      if (load_.paged.attention_window == 0) {
        ASSERT_EQ(sequence.kv.released, 0);
      } else if (!ids.empty() && !sequence.in_step) {
        const int32_t first = sequence.first_position - load_.paged.attention_window + 1;
        ASSERT_EQ(sequence.kv.released, std::max(first, 0) / load_.paged.page_tokens);
      }
      coverage_.given_back += sequence.kv.released;
      if (sequence.kv.copied_from >= 0) {
        ASSERT_TRUE(sequence.in_step);
        copied.insert(sequence.kv.copied_from);
      }
      ASSERT_TRUE(sequence.running || sequence.in_step || sequence.kv.ids.empty());
    }
    int32_t held = static_cast<int32_t>(holders.size());
    for (const int32_t page : copied) held += holders.contains(page) ? 0 : 1;
    ASSERT_EQ(scheduler_.kv().available() + held, load_.paged.pages);
    for (const Sequence& sequence : live_) {
      ASSERT_TRUE(sequence.reuse || sequence.kv.published == 0);
      ASSERT_LE(sequence.kv.published * load_.paged.page_tokens, sequence.first_position);
      const auto published = static_cast<size_t>(sequence.kv.published);
      const auto released = static_cast<size_t>(sequence.kv.released);
      for (size_t i = std::max(published, released); i < sequence.kv.ids.size(); ++i) {
        ASSERT_EQ(holders[sequence.kv.ids[i]], 1);
      }
    }
  }

  void CheckBudget(const BatchDecision& decision, std::span<WaitingSequence* const> batch) {
    const bool generating = std::any_of(live_.begin(), live_.end(),
                                        [](const Sequence& other) { return other.generates; });
    const int32_t most = generating ? limits_.chunk_tokens : decision.bucket.tokens;
    BatchSize size{};
    int32_t prompt_tokens = 0;
    for (WaitingSequence* sequence : batch) {
      size.tokens += sequence->tokens;
      ++size.sequences;
      size.longest = std::max(size.longest, sequence->tokens);
      const int32_t drafted = Own(sequence)->drafted;
      if (drafted == 0 && !IsDecode(*sequence)) prompt_tokens += sequence->tokens;
      ASSERT_LE(sequence->tokens - drafted, most);
      const int32_t end = sequence->first_position + sequence->tokens;
      ASSERT_EQ(Own(sequence)->kv.ids.size(), static_cast<size_t>(scheduler_.kv().PagesFor(end)));
    }
    ASSERT_EQ(size, decision.size);
    ASSERT_TRUE(decision.bucket.Fits(size));
    if (prompt_tokens < size.tokens && load_.batch.prefill_tokens > 0) {
      ASSERT_LE(prompt_tokens, load_.batch.prefill_tokens);
    }
    CheckRunning();
    CheckPagesToCome();
  }

  // Checks that every sequence that has begun can continue to the end of its prompt.
  void CheckPagesToCome() {
    int32_t wanted = 0;
    for (const Sequence& sequence : live_) {
      if (sequence.is_void() || (!sequence.running && !sequence.in_step)) continue;
      const auto length = static_cast<int32_t>(sequence.history.size());
      wanted += scheduler_.kv().PagesFor(length) - static_cast<int32_t>(sequence.kv.ids.size());
    }
    ASSERT_LE(wanted, scheduler_.kv().available());
  }

  void CheckRunning() {
    int32_t running = 0, old = 0, fresh = 0;
    for (const Sequence& sequence : live_) {
      if (sequence.ends || sequence.is_void()) continue;
      const bool stays = sequence.later_tokens > 0 || sequence.generates;
      running += sequence.running || (sequence.in_step && stays) ? 1 : 0;
      old += sequence.running ? 1 : 0;
      fresh += sequence.in_step && !sequence.running ? 1 : 0;
    }
    ASSERT_LE(running, limits_.sequences);
    ASSERT_TRUE(load_.batch.continuous || old == 0 || fresh == 0);
  }

  // Checks that decodes run in every step, that any other running sequence waits only for sequences
  // ahead of it, and that no sequence is overtaken by new sequences in more than max_overtakes
  // steps. Each sequence then ends within twice the number of steps that it and all sequences that
  // lived at the same time take by themselves; twice, because a preempted sequence is computed
  // again.
  void CheckNoSequenceStarves(int64_t decided_at) {
    const SequenceQueue& queue = scheduler_.scheduler().queue();
    for (Sequence& sequence : live_) {
      ASSERT_LE(steps_ - sequence.arrived_at, 2 * sequence.steps_of_all + 1);
      if (sequence.arrived_at >= decided_at) continue;
      if (sequence.in_step) {
        sequence.passed_steps = 0;
        continue;
      }
      ASSERT_FALSE(IsDecode(sequence));
      bool passed = false, waits = false;
      for (WaitingSequence* member : batch_) {
        if (IsDecode(*member) || Own(member)->drafted > 0) continue;
        const bool ahead = queue.Before(*member, sequence);
        waits |= ahead;
        passed |= !ahead && !member->running;
      }
      sequence.passed_steps += passed ? 1 : 0;
      ASSERT_LE(sequence.passed_steps, load_.batch.max_overtakes);
      ASSERT_TRUE(waits || !sequence.running);
    }
  }

  std::mt19937_64 random_;
  Load load_;
  const RunLimits limits_;
  PagedScheduler scheduler_;
  Memory memory_;
  Coverage& coverage_;
  std::vector<std::vector<int32_t>> beginnings_;
  std::list<Sequence> live_;
  std::map<uint64_t, int64_t> alone_;  // steps of a sequence by itself, by ticket
  std::vector<WaitingSequence*> batch_, batch_ahead_;
  BatchDecision ahead_;  // the decision for batch_ahead_
  MonoTime now_{std::chrono::seconds(1)};
  MonoTime next_arrival_ = now_;
  uint64_t tickets_ = 0;
  int64_t steps_ = 0;
};

TEST(GenerationProperty, EverySequenceEndsAndEveryPageIsCorrect) {
  Coverage coverage;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    SCOPED_TRACE(seed);
    Simulation(seed, &coverage).Run();
    if (HasFailure()) return;
  }
  EXPECT_GT(coverage.preemptions, 100);
  EXPECT_GT(coverage.reused, 1000);
  EXPECT_GT(coverage.evicted, 1000);
  EXPECT_GT(coverage.removed, 100);
  EXPECT_GT(coverage.cancelled, 100);
  EXPECT_GT(coverage.failed, 100);
  EXPECT_GT(coverage.ahead, 100);
  EXPECT_GT(coverage.continued_ahead, 1000);
  EXPECT_GT(coverage.given_back, 1000);
  EXPECT_GT(coverage.copied, 200);
  EXPECT_GT(coverage.accepted, 1000);
  EXPECT_GT(coverage.rejected, 1000);
  EXPECT_GT(coverage.drafts_cut, 1000);
  EXPECT_GT(coverage.awaited_drafts, 1000);
}

}  // namespace
}  // namespace sluice
