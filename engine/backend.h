// The interface of a device: it loads models, prepares plans for them and replays the plans.
//
//   std::unique_ptr<ExecutableModel> model = backend->Load(snapshot).value();
//   const std::unique_ptr<Slot> slot = model->CreateSlot(bucket, pages).value();
//   const std::unique_ptr<Plan> plan = model->Prepare(bucket).value();
//   batch.Assign(sequences, sampled_rows, model->row_order());
//   model->Start(*plan, *slot, batch);
//   absl::Status status = model->Finish(*slot);  // writes the results of `sampled_rows`
//
// Ownership: a Backend outlives its ExecutableModels, which outlive their Plans and Slots.
//
// Threads: everything const is thread-safe. Prepare may run at the same time as Start and Finish. A
// Slot is used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/attention_variant.h"
#include "engine/bucket.h"
#include "engine/computed_rows.h"
#include "engine/model/model.h"
#include "engine/step_batch.h"
#include "engine/step_description.h"

namespace sluice {

namespace kernels {
enum class Profile;
}

struct BackendInfo {
  std::string device;   // "cpu" or "cuda:N"; a label of every metric
  std::string profile;  // the numerics profile: equal profiles give equal bits
  int32_t page_tokens;  // tokens of a KV page
  // The number of steps that may be started in a slot while another one runs.
  int32_t steps_ahead = 0;
  // During warm-up, the time of a step is the median of this many runs. It is above 1 if the
  // device's clock rises with its load; steps then first run untimed for a while.
  int32_t timed_runs = 1;
  // The default size of the KV pages, in percent of the memory left by weights and activations.
  int32_t kv_memory_percent = 25;
  // The most buckets if LadderOptions::max_buckets is 0. A device that captures graphs has more
  // than 16 only if captures are cheap enough, see WarmUp.
  int32_t max_buckets = 16;
  // The default of BatchOptions::max_batch_sequences.
  int32_t max_batch_sequences = 256;
};

// The requirements of a step batch for a plan.
struct StepNeeds {
  BatchSize size{};
  // The largest number of candidates that a row reports. Diverse candidates are not counted.
  int32_t num_top = 0;
};

// A model prepared for steps within one bucket. Immutable.
class Plan {
 public:
  virtual ~Plan() = default;
  virtual const Bucket& bucket() const = 0;
  virtual int64_t memory_bytes() const = 0;
  // Returns whether the constraints of the ops hold for a step whose size fits the bucket (top-k
  // needs n >= k). These are range guards.
  virtual bool Accepts(const StepNeeds& needs) const = 0;
  // Returns whether the captured ops run all of a step that the plan accepts. Otherwise, each op
  // whose range guard does not hold is launched separately. Example: a captured top-k has room for
  // n candidates, and the step needs k > n.
  virtual bool Captures(const StepNeeds& needs) const { return true; }
  // Returns whether the ops are launched one by one because nothing was captured.
  virtual bool eager() const { return false; }
};

// The memory of a slot, in bytes.
struct SlotMemory {
  // The activations held now, including the memory of the head. If a step's arena is host memory,
  // only the part that recent steps used.
  int64_t activations = 0;
  int64_t activation_room = 0;  // the most activation memory that steps may hold
  int64_t graphs = 0;           // captured graphs of the head, which all plans share
  int64_t kv = 0;
  int64_t pinned = 0;  // of the host, for copies to and from the device

  SlotMemory& operator+=(const SlotMemory& other) {
    activations += other.activations;
    activation_room += other.activation_room;
    graphs += other.graphs;
    kv += other.kv;
    pinned += other.pinned;
    return *this;
  }
};

// Memory of the device for the activations of one step at a time, and for KV pages. A slot serves
// every bucket with at most the tokens and sequences of the bucket that it was made for.
class Slot {
 public:
  virtual ~Slot() = default;
  virtual int32_t pages() const = 0;      // the number of KV pages; their ids are [0, pages())
  virtual SlotMemory memory() const = 0;  // thread-safe
  // Frees activation memory that no step has used since the previous call, except memory of
  // captured graphs, which keep its addresses. Returns whether a later call may free more. Requires
  // that no step is in progress.
  virtual bool Trim() { return false; }
};

// An adapter in the memory of the device. Steps with rows of it need it until they are finished.
class LoadedAdapter {
 public:
  virtual ~LoadedAdapter() = default;
  virtual int64_t bytes() const = 0;
};

class ExecutableModel {
 public:
  virtual ~ExecutableModel() = default;

  virtual int64_t weight_bytes() const = 0;
  // Returns sentences for the log; each names something that was missing when the model was loaded.
  virtual std::vector<std::string> notices() const { return {}; }
  // Returns a digest of the algorithms chosen for this model. They determine the times of its steps
  // and, together with the profile, its bits.
  virtual std::string algorithms() const { return ""; }
  // Returns the model's own numerics profile, which lists the precision of each product; empty if
  // it is the backend's.
  virtual std::string profile() const { return ""; }
  // Returns the CPU profile of the dense layers that the host computes in f32 after the model's
  // states; nullopt for the best f32 profile of the machine.
  virtual std::optional<sluice::kernels::Profile> host_profile() const { return std::nullopt; }
  // Returns the chosen kernel implementations, such as "attention portable; products hopper"; empty
  // if there is no choice.
  virtual std::string kernels() const { return ""; }
  // Returns a line for each shape of dense layers that a vendor's library computes: the algorithm
  // of each class of rows.
  virtual std::vector<std::string> dense_algorithms() const { return {}; }
  // Returns the order in which attention reads keys; never kAuto.
  virtual AttentionVariant attention() const { return {AttentionVariant::Kind::kOnePass}; }
  // Packs an adapter of the model, whose graph takes adapters.
  virtual absl::StatusOr<std::unique_ptr<const LoadedAdapter>> LoadAdapter(
      const Adapter& adapter) const {
    return NoAdapters();
  }
  // Returns the most bytes that the packed adapter takes.
  virtual absl::StatusOr<int64_t> AdapterBytes(const Adapter& adapter) const {
    return NoAdapters();
  }
  // Describes a step of these sizes; zeros are replaced by defaults. With `profile`, runs such
  // steps for about a second, in separate memory, and measures each op. Returns InvalidArgument if
  // the model does not support the sizes or the profile would take too long, ResourceExhausted if
  // there is no memory for the profile, and Unimplemented if the device cannot describe steps.
  virtual absl::StatusOr<StepDescription> DescribeStep(const StepSizes& step, bool profile) const {
    return absl::UnimplementedError("only models on a CPU can describe their steps");
  }
  virtual RowOrder row_order() const = 0;
  // Returns the rows that a replay computes.
  virtual ComputedRows computed_rows() const { return ComputedRows::OfBatch(); }

  // Calls body(begin, end) for disjoint ranges that cover [0, n). If several host threads compute
  // steps, they share the ranges, which are at most `grain` long. For work between steps.
  virtual void ParallelFor(int64_t n, int64_t grain,
                           absl::FunctionRef<void(int64_t begin, int64_t end)> body) const {
    if (n > 0) body(0, n);
  }

  virtual int64_t page_bytes() const = 0;  // the bytes of a KV page, all layers together
  // Returns the bytes that the activations of a slot for `largest` will take.
  virtual int64_t activation_bytes(const Bucket& largest) const = 0;

  // Prepares a plan. This is expensive and must not be done on the serving path. Returns
  // ResourceExhausted if there is not enough memory.
  virtual absl::StatusOr<std::unique_ptr<Plan>> Prepare(const Bucket& bucket) const = 0;
  // Makes a plan cheaply, for a device without the memory to prepare one. Its ops are launched one
  // by one, which is slower but gives the same bits.
  virtual absl::StatusOr<std::unique_ptr<Plan>> Eager(const Bucket& bucket) const {
    return Prepare(bucket);
  }
  // Makes a slot with KV pages [0, pages), which keep their content from one replay to the next.
  virtual absl::StatusOr<std::unique_ptr<Slot>> CreateSlot(const Bucket& largest,
                                                           int32_t pages) const = 0;

  // A step runs in two parts, Start and Finish, so that the host's work for one step overlaps the
  // device's work on another. Neither part allocates memory or creates a primitive.
  //
  // Start begins a step and returns. Requires that `batch` fits the plan's bucket (and fills it if
  // it is padded), and that plan and batch stay unchanged until Finish returns. The steps of a slot
  // run and are finished in the order of their starts. At most 1 + steps_ahead of them are
  // unfinished. A step may write to pages that the previous step reads.
  virtual void Start(const Plan& plan, Slot& slot, const StepBatch& batch) const = 0;
  // Waits for the end of the oldest step and writes the results of its sampled rows. An error
  // applies to the whole batch. Returns ResourceExhausted if there is not enough memory; the caller
  // may then run parts of the batch instead, which overwrite its results. Returns Unavailable if
  // the device is lost. Non-finite logits are not an error: the row's SampleResult::token is then
  // -1.
  virtual absl::Status Finish(Slot& slot) const = 0;

  absl::Status Replay(const Plan& plan, Slot& slot, const StepBatch& batch) const {
    Start(plan, slot, batch);
    return Finish(slot);
  }

 private:
  static absl::Status NoAdapters() {
    return absl::UnimplementedError(
        "this device serves no adapters; remove the folder of adapters, or lora_adaptations in "
        "config.json");
  }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendInfo& info() const = 0;
  // Returns the number of bytes that can still be allocated, as far as this is known.
  virtual int64_t FreeMemory() const = 0;
  // Follows the number of CPUs that the process may use. Later steps use that many threads, unless
  // an option sets their number. Returns the number of threads in use, or 0 if it is fixed.
  virtual int FollowCpus(int cpus) { return 0; }
  // Returns the bytes of a KV page of a model, all layers together, or 0 if they are known only
  // after Load.
  virtual int64_t PageBytes(const ModelConfig& config) const { return 0; }
  // Checks and packs the weights. If a tensor is missing or has a wrong shape, returns
  // InvalidArgument with its name.
  virtual absl::StatusOr<std::unique_ptr<ExecutableModel>> Load(
      std::shared_ptr<const Model> model) = 0;
};

}  // namespace sluice
