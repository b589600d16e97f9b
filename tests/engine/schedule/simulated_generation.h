// The sequences, the KV memory and the loads of a simulated generation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <vector>

#include "engine/schedule/paged_scheduler.h"
#include "gtest/gtest.h"

namespace sluice::simulated {

struct Sequence : PagedSequence {
  std::vector<int32_t> all;     // the storage of `history`
  std::vector<uint64_t> names;  // for each position, a hash of all tokens up to it
  int32_t to_draw = 0;          // tokens to generate; with 0 it ends after its prompt

  bool in_step = false;
  // Whether it ends with its current step although another step was already decided.
  bool ends = false;
  bool cancelled = false;
  int64_t arrived_at = 0;  // the number of the step
  // The steps that it and all sequences that lived at the same time would take by themselves.
  int64_t steps_of_all = 0;
  // The steps since its last step in which a sequence after it began.
  int32_t passed_steps = 0;

  void Append(int32_t token) {
    const uint64_t before = names.empty() ? kv.root : names.back();
    names.push_back((before ^ static_cast<uint64_t>(token)) * 0x9E3779B97F4A7C15u + 1);
    all.push_back(token);
    history = all;
  }
};

inline Sequence* Own(WaitingSequence* sequence) { return static_cast<Sequence*>(sequence); }

// The KV memory: for each position of each page, the hash of the tokens whose values were written
// there.
class Memory {
 public:
  explicit Memory(const PagedScheduler::Options& options)
      : page_tokens_(static_cast<size_t>(options.page_tokens)),
        window_(options.attention_window),
        slots_(static_cast<size_t>(options.pages) * page_tokens_) {}

  // Checks the values that the sequence's next step reads.
  void ExpectComputed(const Sequence& sequence) {
    const int32_t first = window_ == 0 ? 0 : sequence.first_position - window_ + 1;
    for (size_t p = static_cast<size_t>(std::max(first, 0));
         p < static_cast<size_t>(sequence.first_position); ++p) {
      ASSERT_EQ(Slot(sequence, p), sequence.names[p])
          << "ticket " << sequence.ticket << " at " << p;
    }
  }
  // Copies the tail at the beginning of the sequence, if its next step needs it.
  bool CopyTail(const Sequence& sequence) {
    const SequencePages& kv = sequence.kv;
    if (kv.copied_from < 0 || sequence.first_position != kv.shared) return false;
    const size_t tail = static_cast<size_t>(kv.shared) % page_tokens_;
    const size_t to = static_cast<size_t>(kv.ids[static_cast<size_t>(kv.shared) / page_tokens_]);
    std::copy_n(slots_.begin() + static_cast<size_t>(kv.copied_from) * page_tokens_, tail,
                slots_.begin() + to * page_tokens_);
    return true;
  }
  // Drafted tokens overwrite their positions with values of no sequence.
  void Compute(const Sequence& sequence) {
    const auto first = static_cast<size_t>(sequence.first_position);
    for (size_t p = first; p < first + static_cast<size_t>(sequence.tokens); ++p) {
      Slot(sequence, p) = p < sequence.names.size() ? sequence.names[p] : 0;
    }
  }
  // Writes the values of the accepted drafted tokens, which are in the history now.
  void Accept(const Sequence& sequence, int32_t accepted) {
    const auto end = sequence.names.size() - 1;  // the last token is not computed
    for (size_t p = end - static_cast<size_t>(accepted); p < end; ++p) {
      Slot(sequence, p) = sequence.names[p];
    }
  }

 private:
  uint64_t& Slot(const Sequence& sequence, size_t position) {
    const auto page = static_cast<size_t>(sequence.kv.ids[position / page_tokens_]);
    return slots_[page * page_tokens_ + position % page_tokens_];
  }

  const size_t page_tokens_;
  const int32_t window_;
  std::vector<uint64_t> slots_;
};

struct Load {
  BatchOptions batch;
  PagedScheduler::Options paged;
  std::shared_ptr<const Ladder> ladder;
  int32_t longest = 0;  // the most tokens of a sequence
  int arrivals = 0;
  int64_t gap_us = 0;  // the longest time between two arrivals

  explicit Load(std::mt19937_64* random) {
    const auto one_of = [&](std::initializer_list<int32_t> values) {
      return *(values.begin() + (*random)() % values.size());
    };
    paged.page_tokens = one_of({1, 2, 4, 8});
    longest = one_of({12, 40});
    const int32_t least = (longest + paged.page_tokens - 1) / paged.page_tokens;
    paged.pages = least * one_of({1, 1, 2, 4, 16});
    paged.step_pages = least;
    paged.prefix_reuse = one_of({0, 1, 1}) == 1;
    paged.attention_window = one_of({0, 0, 1, 3, 9});
    batch.max_batch_sequences = one_of({1, 3, 8, 16});
    batch.prefill_tokens = one_of({0, 1, 3, 7, 16});
    batch.max_overtakes = one_of({0, 2, 64});
    batch.continuous = one_of({0, 1, 1}) == 1;
    batch.max_queue_delay_us = one_of({0, 500});
    paged.draft_sequences = one_of({0, 1, 1, 16});
    ladder = std::make_shared<const Ladder>(
        *BuildLadder({.strategy = StrategyKind::kGeometric, .min_tokens = 4},
                     {.max_tokens = one_of({40, 64}), .max_sequences = batch.max_batch_sequences}));
    arrivals = one_of({10, 60});
    gap_us = one_of({100, 1000, 10000});
  }
};

}  // namespace sluice::simulated
