// Runs steps of a model with random weights, for the cases that time plans.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/backend.h"
#include "loadtest/gpu/bench.h"

namespace sluice::gpu {

// Returns a model whose weights repeat a pattern of random numbers, because drawing every weight of
// a large model would take longer than all cases together.
std::shared_ptr<const Model> PatternModel(const ModelConfig& config);

// The tokens and the sampled rows of a step.
struct StepShape {
  struct SequenceRows {
    int32_t first_position, count;
  };
  enum class Rows { kLast, kLastOfEach, kAllScored };

  std::vector<SequenceRows> pieces;  // one per sequence
  Rows rows = Rows::kLast;
  float temperature = 0;

  // Returns fresh sequences of `longest` tokens each, the last one shorter.
  static StepShape Fresh(int32_t tokens, int32_t longest);

  int32_t tokens() const;
  int32_t pages(int32_t page_tokens) const;
};

// A loaded model and batches for its steps. The KV pages hold random values, so that sequences may
// start at any position.
class Steps {
 public:
  // `dense` is the option of CudaBackendOptions, with portable kernels. "tuned" selects our own
  // kernels, tuned where the GPU has them. `largest` is the upper bound of all steps.
  Steps(Bench& bench, const ModelConfig& config, const std::string& dense, const Bucket& largest);

  const ExecutableModel& executable() const { return *executable_; }
  int32_t page_tokens() const { return backend_->info().page_tokens; }
  // Returns a slot with the pages of fresh sequences that fill the largest bucket.
  std::unique_ptr<Slot> MakeSlot() const;

  void Run(const Plan& plan, Slot& slot, const StepShape& shape);
  Bench::Times Time(const Plan& plan, Slot& slot, const StepShape& shape);
  // Returns the microseconds per step of several steps, each queued while the previous one runs.
  double TimeOverlapping(const Plan& plan, Slot& slot, const StepShape& shape);

 private:
  // Prepares the one of two batches that no running step uses, and starts it.
  void Start(const Plan& plan, Slot& slot, const StepShape& shape);

  Bench& bench_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ExecutableModel> executable_;
  const Bucket largest_;
  std::vector<StepBatch> batches_;
  std::array<std::vector<kernels::SampleResult>, 2> results_;
  std::vector<StepSequence> sequences_;
  std::vector<SampledRow> sampled_;
  size_t next_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> pages_;
};

}  // namespace sluice::gpu
