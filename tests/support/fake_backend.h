// A backend without arithmetic: every output is a hash of the sequence that determines it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "engine/backend.h"

namespace sluice {

// The outputs of the fake model; tests compute them for a single sequence.
namespace fake {

// Returns the draw after `sequence`. With temperature 0 the parameters have no effect.
kernels::SampleResult Draw(std::span<const int32_t> sequence, const kernels::SampleParams& params,
                           int64_t vocab);
float Logprob(std::span<const int32_t> sequence, int32_t target);
float Logit(std::span<const int32_t> sequence, int64_t id);
int32_t TopId(std::span<const int32_t> sequence, int32_t rank, int64_t vocab);
// Returns the negative token that represents an input vector.
int32_t TokenOf(std::span<const float> vector);
float CosSim(int64_t layer, int32_t token, int32_t position, int64_t head);
// Returns value `i` of the state after `sequence`.
float State(std::span<const int32_t> sequence, int64_t i);
float ProjFrac(int64_t layer, int32_t token, int32_t position, int64_t head);

}  // namespace fake

// Returns a model of two layers, three heads, 64 positions and 97 tokens, with XSA; tests change
// the fields that they need.
ModelConfig FakeConfig();
std::shared_ptr<const Model> FakeModel(const ModelConfig& config, const std::string& name = "fake",
                                       int64_t version = 1);

struct RecordedBatch {
  Bucket bucket;  // the plan's bucket
  std::vector<std::vector<int32_t>> sequences;
};

// A backend whose keys and values are the tokens themselves, stored in pages. Results are computed
// from the pages, so wrong pages or rows give wrong outputs. Thread-safe.
class FakeBackend : public Backend {
 public:
  struct Options {
    ComputedRows rows = ComputedRows::OfBucket();
    int32_t page_tokens = 4;
    RowOrder order = RowOrder::kPositionMajor;
    int64_t plan_bytes_per_token = 10;
    int64_t activation_bytes_per_token = 0;
    int32_t top_needs_tokens = 0;   // plans of smaller buckets refuse steps with candidates
    int64_t free_memory = 1 << 20;  // bytes; a page takes one per token
    int32_t poison_token = -1;      // rows that see this token are not finite
    int32_t steps_ahead = 0;
    int32_t timed_runs = 1;
    int32_t max_buckets = 16;
  };
  explicit FakeBackend(const Options& options);
  FakeBackend() : FakeBackend(Options{}) {}

  const BackendInfo& info() const override { return info_; }
  int64_t FreeMemory() const override { return options_.free_memory; }
  int64_t PageBytes(const ModelConfig& config) const override { return info_.page_tokens; }
  absl::StatusOr<std::unique_ptr<ExecutableModel>> Load(
      std::shared_ptr<const Model> model) override;

  // Sets a hook that is called with the number of sequences when a step starts.
  void OnStart(std::function<void(int32_t)> hook);
  // Sets a hook that ParallelFor calls on its thread, with the size of the work.
  void OnParallelFor(std::function<void(int64_t)> hook);
  // Sets a hook that is called when the end of a step is awaited, which is when the step runs. It
  // runs on the awaiting thread and may block. Its error becomes the step's result.
  void OnReplay(std::function<absl::Status(const RecordedBatch&)> hook);
  // Sets a hook that is called at the start of a preparation, on its thread. It may block. Its
  // error becomes the preparation's result.
  void OnPrepare(std::function<absl::Status(const Bucket&)> hook);

  // Returns the number of steps that were started while another step was in progress.
  int started_ahead() const;

  // Returns the number of plans that exist.
  int live_plans() const;
  void AwaitLivePlans(int count) const;

  std::vector<RecordedBatch> batches() const;
  void ForgetBatches();

 private:
  class Executable;
  class FakePlan;

  void NoteStart(int32_t sequences, bool ahead);
  void NoteParallelFor(int64_t n);
  absl::Status BeginReplay(RecordedBatch batch);
  absl::Status BeginPrepare(const Bucket& bucket);
  void CountPlans(int change);

  const Options options_;
  const BackendInfo info_;

  mutable Mutex mu_;
  mutable CondVar plans_changed_;
  int started_ahead_ ABSL_GUARDED_BY(mu_) = 0;
  int live_plans_ ABSL_GUARDED_BY(mu_) = 0;
  std::function<void(int32_t)> on_start_ ABSL_GUARDED_BY(mu_);
  std::function<void(int64_t)> on_parallel_for_ ABSL_GUARDED_BY(mu_);
  std::function<absl::Status(const RecordedBatch&)> on_replay_ ABSL_GUARDED_BY(mu_);
  std::function<absl::Status(const Bucket&)> on_prepare_ ABSL_GUARDED_BY(mu_);
  std::vector<RecordedBatch> batches_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
