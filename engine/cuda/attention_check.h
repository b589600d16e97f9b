// Inputs and expected outputs for the trial of attention candidates.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/cuda/kernel_candidates.h"
#include "engine/cuda/row_check.h"

namespace sluice {

// A candidate is tried with a new prompt, the end of a long sequence and a continued sequence:
// together, one by one, in another order, divided into other steps, and each row as a step of its
// own. A row's context is therefore in the same step or in the cache. Keys, values and queries are
// within 1; one of each kind is not finite.
//
// A row's error before XSA is at most 4 (d^1.5 + context) 2^-24, for scores and sums in float. If
// outputs are bfloat16, 2^-7 is added, since probabilities are rounded to it as well. XSA
// propagates the error.
template <typename T>
class AttentionCheck {
 public:
  // `tensors` are the layer's tensors on the device; they outlive this.
  AttentionCheck(const AttentionShape& shape, const AttentionTensors& tensors)
      : shape_(shape), tensors_(tensors) {}

  absl::Status Prepare(Device& device, DeviceStream& stream);
  // Returns FailedPrecondition with the fault if the candidate fails its trial; other errors come
  // from the device.
  absl::Status Check(const AttentionCandidate<T>& candidate, DeviceStream& stream);
  // Returns the seconds that a candidate takes for about `rows` rows, one of kTimedRows.
  absl::StatusOr<double> SecondsOf(const AttentionCandidate<T>& candidate, int32_t rows,
                                   Device& device, DeviceStream& stream);

 private:
  static constexpr bool kHalf = sizeof(T) == 2;

  // A sequence. Each of its last `queries` positions has a row in the trial.
  struct Sequence {
    int32_t length, queries;
    int32_t first_row;
    int32_t pages_offset;
    std::vector<T> q;     // [queries, q_heads, head_dim]
    std::vector<T> k, v;  // [length, kv_heads, head_dim]

    int32_t first_position() const { return length - queries; }
  };
  // Rows of a sequence in one step.
  struct SequenceRows {
    int32_t sequence;
    int32_t first, count;  // of the sequence's rows
  };
  using Pieces = std::vector<SequenceRows>;
  struct Batch {
    const T* q;
    const kernels::cuda::AttentionSequence* sequences;
    const int32_t* rows;
    kernels::cuda::AttentionTiles tiles;
    float* scratch;
  };

  int64_t q_width() const { return int64_t{shape_.q_heads} * shape_.head_dim; }
  int64_t kv_width() const { return int64_t{shape_.kv_heads} * shape_.head_dim; }

  void DrawSequences();
  void AddSequence(int32_t length, int32_t queries);
  std::vector<Pieces> Batches() const;
  std::vector<int32_t> RowsOf(const Pieces& pieces) const;
  int32_t LongestSequence() const;
  void PutKv();
  Batch Put(const std::vector<T>& q, const std::vector<kernels::cuda::AttentionSequence>& steps);
  void PutBatch(const Pieces& pieces);
  Batch PutTimed(int32_t rows);
  kernels::cuda::AttentionArgs<T> ArgsOf(const Batch& inputs, T* out) const;
  int64_t bias_values() const {
    return shape_.q_heads * (2 * int64_t{shape_.max_positions} + kernels::cuda::kBiasSlack);
  }
  // Returns `count` numbers that are on the device; none if `from` is nullptr.
  absl::StatusOr<std::vector<double>> Fetch(const float* from, int64_t count);
  void Expect(const Sequence& sequence, const std::vector<double>& gate,
              const std::vector<double>& bias, RowCheckSpec* spec) const;

  const AttentionShape shape_;
  const AttentionTensors tensors_;
  int32_t processors_ = 1;  // of the device
  std::vector<Sequence> sequences_;
  std::vector<int32_t> pages_;
  std::vector<Batch> batches_;
  std::map<int32_t, Batch> timed_;  // by the number of rows
  const int32_t* pages_on_device_ = nullptr;
  const T* k_ = nullptr;
  const T* v_ = nullptr;
  std::optional<CheckInputs> inputs_;
  std::optional<RowCheck> check_;
};

}  // namespace sluice
