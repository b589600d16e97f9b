// Runs in virtual time that write a journal.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/journal/journal.h"
#include "engine/ladder/ladder.h"
#include "engine/model/model.h"
#include "engine/review/virtual_run.h"
#include "engine/schedule/scheduler.h"
#include "gtest/gtest.h"

namespace sluice {

// Runs the arrivals with a geometric ladder, on a device that computes these rows, and writes their
// journal to `path`. The maxima of `batch` must be set.
inline void RecordRun(std::span<const Arrival> arrivals, const BatchOptions& batch,
                      const VirtualRunOptions& run, const std::string& path,
                      const ComputedRows& rows = ComputedRows::OfBucket()) {
  const Model model{};
  const BackendInfo backend{};
  const Journal::Start start{.model = &model,
                             .backend = &backend,
                             .half_life = std::chrono::minutes(5),
                             .batch = batch,
                             .costs = CostModel(rows).state()};
  auto journal = Journal::Open(path, start, {});
  ASSERT_TRUE(journal.ok()) << journal.status();
  (*journal)->StartWriting();
  const auto ladder = BuildLadder(
      {.strategy = StrategyKind::kGeometric},
      {.max_tokens = batch.max_batch_tokens, .max_sequences = batch.max_batch_sequences});
  ASSERT_TRUE(ladder.ok()) << ladder.status();
  (*journal)->OnLadder(*ladder);
  Scheduler scheduler(batch, start.half_life, std::make_shared<const Ladder>(*ladder),
                      CostModel(rows), journal->get());
  RunVirtually(arrivals, run, &scheduler);
}

}  // namespace sluice
