// What a device must offer: load a model, prepare plans, replay them.
//
// Ownership: Backend outlives its ExecutableModels, which outlive their Plans and Slots.
// Threads: everything const is thread-safe. Prepare may run beside Start and Finish. A Slot is used by
// one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/bucket.h"
#include "engine/model/model.h"
#include "engine/step_batch.h"

namespace sluice {

struct BackendInfo {
  std::string device;   // "cpu", later "cuda:0"; label of every metric
  std::string profile;  // numerics profile; same profile, same bits
  int32_t tile_tokens;  // rows that the device computes together; the hardware_aware step
  int32_t page_tokens;  // tokens of a KV page
  // A replay computes the batch's rows rounded up to a multiple of this; 1: exactly these.
  int32_t row_multiple = 1;
  // Steps that a slot takes while one of them runs.
  int32_t steps_ahead = 0;
};

// What a step batch asks of a plan.
struct StepNeeds {
  BatchSize size{};
  int32_t num_top = 0;  // the most candidates that one of its rows reports
};

// The execution of a model for one bucket. Immutable.
class Plan {
 public:
  virtual ~Plan() = default;
  virtual const Bucket& bucket() const = 0;
  virtual int64_t memory_bytes() const = 0;
  // Range guards: do the ops' constraints hold for a step whose size fits the bucket? (Top-k needs
  // n >= k.)
  virtual bool Accepts(const StepNeeds& needs) const = 0;
  // Nothing was captured for it.
  virtual bool eager() const { return false; }
};

// Arena of activations for one execution at a time, large enough for every bucket that has at most the
// tokens and the sequences of the one that it was made for, and KV pages.
class Slot {
 public:
  virtual ~Slot() = default;
  virtual int32_t pages() const = 0;  // KV pages; ids are [0, pages())
  virtual int64_t memory_bytes() const = 0;
};

class ExecutableModel {
 public:
  virtual ~ExecutableModel() = default;

  virtual int64_t weight_bytes() const = 0;
  // Sentences for the log about what it was loaded without.
  virtual std::vector<std::string> notices() const { return {}; }
  virtual RowOrder row_order() const = 0;

  virtual int64_t page_bytes() const = 0;  // of a KV page, all layers

  // Expensive; runs off the serving path. ResourceExhausted when memory does not suffice.
  virtual absl::StatusOr<std::unique_ptr<Plan>> Prepare(const Bucket& bucket) const = 0;
  // Cheap: a plan for a device that has no memory to prepare one. Its ops are launched one by one, which
  // is slower and gives the same bits.
  virtual absl::StatusOr<std::unique_ptr<Plan>> Eager(const Bucket& bucket) const {
    return Prepare(bucket);
  }
  // With KV pages [0, pages), which keep what is written to them from one replay to the next.
  virtual absl::StatusOr<std::unique_ptr<Slot>> CreateSlot(const Bucket& largest,
                                                           int32_t pages) const = 0;

  // A step is run in two halves, so that one step's way to the device overlaps another one's time on it.
  // Both allocate nothing and create no primitive.
  //
  // Start brings `batch`, which fits the bucket (padded: fills it), on its way. Plan and batch stay as
  // they are until its Finish, which waits for its end and answers its sampled rows. A slot's steps run
  // and are finished in the order of their starts; of 1 + steps_ahead at most Finish is due. A step may
  // write to pages that the one before reads.
  virtual void Start(const Plan& plan, Slot& slot, const StepBatch& batch) const = 0;
  // An error is the whole batch's: ResourceExhausted that memory does not suffice, so that parts may be
  // run in its place, over what it has written; Unavailable that the device is lost. A row whose logits
  // are not finite is none but has SampleResult::token == -1.
  virtual absl::Status Finish(Slot& slot) const = 0;

  absl::Status Replay(const Plan& plan, Slot& slot, const StepBatch& batch) const {
    Start(plan, slot, batch);
    return Finish(slot);
  }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendInfo& info() const = 0;
  // Memory that may still be taken, as far as is known.
  virtual int64_t FreeMemory() const = 0;
  // Checks and packs the weights. InvalidArgument names the tensor that is missing or misshapen.
  virtual absl::StatusOr<std::unique_ptr<ExecutableModel>> Load(
      std::shared_ptr<const Model> model) = 0;
};

}  // namespace sluice
