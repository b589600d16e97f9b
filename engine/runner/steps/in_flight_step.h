// A step of a model from its decision to its delivery.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/backend.h"
#include "engine/observer.h"
#include "engine/plans/plan_cache.h"
#include "engine/runner/requests/active_request.h"
#include "engine/runner/steps/execution_slot.h"
#include "engine/runner/steps/step_delivery.h"

namespace sluice {

// The sequences that run together, their size and the bucket chosen for them.
struct StepRows {
  std::span<WaitingSequence* const> sequences;
  std::span<RequestRow* const> rows;  // the rows of `sequences`, in the same order
  BatchSize size{};
  Bucket bucket{};

  // Returns `count` rows from `begin` on, with their size and without a bucket.
  StepRows Part(size_t begin, size_t count) const;
  // Returns the requirements for a plan that runs them.
  StepNeeds Needs() const;
};

struct StepTiming {
  const CachedPlan* plan = nullptr;
  Lookup lookup = Lookup::kHit;
  StepShape shape{};
  nanoseconds layout{0};    // the time that the host took to lay the step out
  MonoTime started{};       // handed to the backend
  MonoTime begin{}, end{};  // period on the device
  MonoTime collected{};     // when the host had collected its results

  const Bucket& bucket() const { return plan->plan().bucket(); }
  // Returns the cost of the step. With many classifier labels, the host may take longer than the
  // device. The next step waits for the host, or runs at the same time if steps run ahead.
  nanoseconds Cost(bool runs_ahead) const {
    const nanoseconds on_device = end - begin, on_host = collected - end;
    return runs_ahead ? std::max(on_device, on_host) : on_device + on_host;
  }
  // Returns the time that the device waits for the host between two such steps unless the second
  // one starts ahead.
  nanoseconds Wait() const { return layout + (collected - end); }
};

// A batch in its slot, with capacity for the largest bucket. It is reused from batch to batch.
struct InFlightStep {
  InFlightStep(ExecutionSlot* execution_slot, const PlanCache* cache, size_t max_sequences);

  // Sets `rows` to the rows of `sequences`, and returns all of them without size and bucket.
  StepRows ListRows();

  ExecutionSlot* const slot;
  PlanCache::Reader plans;
  BatchDecision decision{};
  MonoTime decided{};
  int64_t number = 0;  // the number of the batch, from 1
  std::vector<WaitingSequence*> sequences;
  std::vector<RequestRow*> rows;
  StepRows running{};                // the rows that run or ran last; all rows or a part
  std::vector<RowOutcome> outcomes;  // of `running`, in the same order; valid once it has run
  StepTiming timing{};
  StepDelivery delivery;
  BatchTrace trace{};  // valid once it has run
};

}  // namespace sluice
