// The logits, scores and samples of a step's sampled rows. Graphs are captured for 32 and for 256
// rows and run as often as the step needs. The memory of logits and the graph of a bucket therefore
// do not grow with the number of sampled rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cuda/device.h"
#include "engine/model/config.h"
#include "engine/step_batch.h"
#include "kernels/cuda/diverse.h"
#include "kernels/cuda/row_tiles.h"
#include "kernels/cuda/sample.h"
#include "kernels/cuda/score.h"
#include "kernels/row_group.h"

namespace sluice {

// The weights of a head, on the device.
template <typename T>
struct HeadWeights {
  // [hidden, PaddedVocab(vocab)]. Columns after the vocabulary are zeros, here and in the bias.
  // Packed if our kernel reads it; nullptr if the model has no head.
  const T* weight = nullptr;
  const T* bias = nullptr;  // [PaddedVocab(vocab)] or nullptr
  float soft_cap = 0;       // as in HeadOp
  // Computes the products, without bias; if nullptr, our kernel does.
  const DenseFamily* layer = nullptr;
};

template <typename T>
class CudaHead {
 public:
  // The most rows of a run, and of one with edits, logits or many candidates.
  static constexpr int32_t kWideRows = 256, kNarrowRows = 32;
  // The most rows of a run that chooses diverse candidates.
  static constexpr int32_t kDiverseRows = 8;
  // The most candidates of a row in a run that does not allow more.
  static constexpr int32_t kFewTop = 64;

  // `hidden` is the input of the head after every step, [tokens, hidden]. A step samples up to
  // `most_rows` rows. Captures on `stream`. If memory does not suffice for a graph, its runs launch
  // their kernels one by one. Returns ResourceExhausted if memory does not suffice for their data.
  static absl::StatusOr<std::unique_ptr<CudaHead>> Create(const ModelConfig& config,
                                                          const T* hidden, int32_t most_rows,
                                                          const HeadWeights<T>& weights,
                                                          Device& device, DeviceStream& stream);

  // Host memory for the inputs and outputs of the queued runs.
  class HeadStaging;
  absl::StatusOr<std::unique_ptr<HeadStaging>> MakeStaging(Device& device) const;

  // Queues runs for the sampled rows of the batch from `first` on, after the work on `stream`, and
  // the copies of their results. Returns the number of rows that the runs answer: all remaining
  // rows, or fewer if `staging` has no room for their results. Returns 0 if no row remains.
  int32_t Queue(const StepBatch& batch, int64_t first, HeadStaging& staging, DeviceStream& stream);
  // Writes the results of the queued runs to the destinations of their rows. Requires that the runs
  // are done.
  void Deliver(const StepBatch& batch, const HeadStaging& staging) const;

  // Returns the device address of the outcomes of a step's sampled rows, [most_rows]. They are
  // valid until the next step runs the head.
  const kernels::cuda::SampleOutcome* outcomes() const { return output_.outcomes; }

  int64_t bytes() const { return bytes_; }  // on the device, without the graphs
  int64_t graph_bytes() const;
  int64_t staging_bytes() const;  // of a staging area
  // Returns the bytes on the device of the head that Create would make.
  static int64_t BytesOf(const ModelConfig& config, int32_t most_rows,
                         const HeadWeights<T>& weights);

 private:
  // The most words for a token in the lists of a row.
  static constexpr int64_t kMaxWordsAToken = 7;

  // The kinds of runs. Runs with many candidates are rare and not captured. kScore computes
  // log-probabilities of given tokens with our kernels and writes no logits. kDiverse chooses
  // candidates, up to the maximum number that a request may have.
  enum Kind { kWide, kNarrow, kManyTop, kScore, kDiverse, kKinds };

  // The input of a run, which the host sends in one copy.
  struct Input {
    int32_t* counts;  // [3]: rows, tiles of our kernel, and the index of the first sampled row
    kernels::RowGroup* tiles;
    int32_t* row_ids;         // [rows]
    int32_t* excluded_begin;  // [rows + 1], into the lists, which are sent separately
    kernels::cuda::SampleRequest* requests;  // [rows]
    kernels::cuda::DrawEdits* edits;         // [rows], of the rows that have edits; unless wide
    kernels::cuda::DiverseRequest* diverse;  // [rows], of kDiverse
  };
  // The output of a run. The outcomes cover the step: each row's outcome is at its index among the
  // sampled rows.
  struct Output {
    kernels::cuda::SampleOutcome* outcomes;  // [most_rows]
    int32_t* top_ids;                        // [rows, MaxTop()]
    float* top_logprobs;                     // [rows, MaxTop()]
    float* top_scores;                       // [rows, MaxTop()]
    float* logits;                           // [rows, columns_] on the device, else [rows, vocab]
  };
  // The parts of the staging arrays that runs take: bytes of input, words of lists, rows, entries
  // of candidates, logits.
  struct Taken {
    int64_t input = 0, lists = 0, outcomes = 0, top = 0, logits = 0;
  };
  // Consecutive sampled rows. Its results are in the staging arrays from `begin` to `end`.
  struct Run {
    Kind kind;
    int64_t first;
    int32_t rows = 0;
    Taken begin, end;
  };

  bool Uses(Kind kind) const;
  int32_t MaxRows(Kind kind) const {
    if (kind == kDiverse) return kDiverseRows;
    return kind == kWide || (kind == kScore && Uses(kWide)) ? kWideRows : kNarrowRows;
  }
  // Returns whether a run of kScore answers the row. This depends only on the row, because such
  // runs round differently.
  bool IsScored(const SampledRow& row) const;
  int32_t MaxTop(Kind kind) const {
    if (kind == kManyTop) return vocab_;
    return std::min(kind == kDiverse ? kernels::kMaxDiversePool : kFewTop, vocab_);
  }
  // Returns whether the candidates of each row are fetched by themselves.
  static bool FetchesByRow(Kind kind) { return kind == kManyTop || kind == kDiverse; }
  size_t WorkspaceBytes() const;
  // Returns whether a run may hold the row.
  bool Allows(Kind kind, const SampledRow& row) const;
  // Returns the sizes of a staging area.
  Taken Capacity() const;

  // Sets the sizes.
  CudaHead(const ModelConfig& config, int32_t most_rows, const HeadWeights<T>& weights);
  // Cuts the arrays on the device, or a staging area, from `memory` and returns their bytes.
  int64_t Cut(void* memory);
  int64_t CutStaging(void* memory, HeadStaging* staging) const;
  absl::Status Allocate(Device& device);
  template <typename Cutter>
  Input CutInput(Kind kind, Cutter& cutter) const;
  int64_t InputBytes(Kind kind) const;
  void Launch(Kind kind, DeviceStream& stream) const;
  void LaunchProducts(Kind kind, DeviceStream& stream) const;
  void LaunchScore(DeviceStream& stream) const;
  void LaunchDiverse(DeviceStream& stream) const;
  kernels::cuda::RowTiles TilesOf(Kind kind) const;
  // Returns the run for rows from `first` on. It has as many rows as fit one graph and the staging
  // area, possibly none.
  Run NextRun(const StepBatch& batch, int64_t first, const HeadStaging& staging) const;
  Run RunOf(Kind kind, const StepBatch& batch, int64_t first, const HeadStaging& staging) const;
  void Send(const StepBatch& batch, const Run& run, HeadStaging& staging, DeviceStream& stream);
  void SendLists(const StepBatch& batch, const Run& run, const Input& sent, HeadStaging& staging,
                 DeviceStream& stream);
  void Fetch(const StepBatch& batch, const Run& run, HeadStaging& staging, DeviceStream& stream);
  void DeliverRun(const StepBatch& batch, const Run& run, const HeadStaging& staging) const;

  const T* hidden_ = nullptr;
  HeadWeights<T> weights_;
  int32_t width_ = 0, vocab_ = 0;
  int32_t columns_ = 0;    // of logits on the device: PaddedVocab(vocab_)
  int32_t most_rows_ = 0;  // of a step
  int64_t bytes_ = 0;
  DeviceMemory memory_, workspace_;  // workspace_ is for the products
  std::array<Input, kKinds> input_ = {};
  T* gathered_ = nullptr;        // [rows, hidden]
  uint64_t* scratch_ = nullptr;  // [kNarrowRows, vocab]
  // The excluded tokens of the rows of a run, then the lists of their edits; as many words as in a
  // staging area.
  int32_t* lists_ = nullptr;
  kernels::cuda::ScorePart* parts_ = nullptr;  // of runs of kScore, like target_logits_
  float* target_logits_ = nullptr;             // [rows]
  double* factors_ = nullptr;                  // of runs of kDiverse
  Output output_ = {};
  std::array<std::unique_ptr<DeviceGraph>, kKinds> graphs_;  // nullptr if none was captured
};

template <typename T>
class CudaHead<T>::HeadStaging {
 private:
  friend class CudaHead;
  static constexpr int64_t kMaxRuns = 512;

  PinnedMemory pinned_;
  char* inputs_ = nullptr;    // sent, like lists_
  int32_t* lists_ = nullptr;  // as in CudaHead
  Output output_ = {};        // fetched
  std::vector<Run> runs_;     // queued
  Taken taken_;               // by runs_
};

}  // namespace sluice
