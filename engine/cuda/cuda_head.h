// The logits, scores and samples of a step's sampled rows. A captured graph for kHeadRows rows runs
// as often as the step needs, so that neither the memory of logits nor the graph of a bucket grows
// with the number of sampled rows.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cuda/device.h"
#include "engine/model/config.h"
#include "engine/step_batch.h"
#include "kernels/cuda/row_tiles.h"
#include "kernels/cuda/sample.h"
#include "kernels/row_group.h"

namespace sluice {

// The weights of a head, on the device.
template <typename T>
struct HeadWeights {
  const T* weight = nullptr;  // [hidden, vocab]; nullptr if the model has no head
  const T* bias = nullptr;    // [vocab] or nullptr
  float soft_cap = 0;         // as in HeadOp
  // Computes the products, without bias; if nullptr, our kernel does.
  const DenseLayer* layer = nullptr;
};

template <typename T>
class CudaHead {
 public:
  static constexpr int32_t kHeadRows = 32;

  // `hidden` is where every step leaves the input of the head, [tokens, hidden]. Captures on
  // `stream`; if memory does not suffice for the graph, each run launches its kernels one by one.
  // Returns ResourceExhausted if memory does not suffice for their data.
  static absl::StatusOr<std::unique_ptr<CudaHead>> Create(const ModelConfig& config,
                                                          const T* hidden,
                                                          const HeadWeights<T>& weights,
                                                          Device& device, DeviceStream& stream);

  // The data of one run at a time that go to the device and come back, in host memory.
  class HeadStaging;
  absl::StatusOr<std::unique_ptr<HeadStaging>> MakeStaging(Device& device) const;

  // Queues a run for the sampled rows of the batch from `first` on, behind the work on `stream`,
  // and the copies of its results. Returns the number of rows that the run answers; 0 if none is
  // left.
  int32_t Queue(const StepBatch& batch, int64_t first, HeadStaging& staging, DeviceStream& stream);
  // Writes the results of the run, after it is done, to the destinations of its rows.
  void Deliver(const StepBatch& batch, int64_t first, int32_t rows,
               const HeadStaging& staging) const;

  int64_t bytes() const { return bytes_; }  // on the device

 private:
  static constexpr int64_t kTiles = kernels::cuda::MaxRowTiles(kHeadRows, 1);

  // The input of a run, which the host sends.
  struct Input {
    int32_t rows;
    int32_t tile_count;
    kernels::RowGroup tiles[kTiles];
    int32_t row_ids[kHeadRows];
    int32_t excluded_begin[kHeadRows + 1];  // into the lists, which are sent separately
    kernels::cuda::SampleRequest requests[kHeadRows];
    kernels::cuda::DrawEdits edits[kHeadRows];  // of the rows that have edits
  };
  // The output of a run, each array [kHeadRows] or [kHeadRows, vocab].
  struct Output {
    kernels::cuda::SampleOutcome* outcomes;
    int32_t* top_ids;
    float* top_logprobs;
    float* logits;
  };

  CudaHead() = default;

  absl::Status Allocate(Device& device);
  template <typename Cutter>
  void CutOutput(Cutter& cutter, Output* output) const;
  void Launch(DeviceStream& stream) const;
  void LaunchProducts(DeviceStream& stream) const;
  // Returns the number of rows from `first` on that one run answers: up to kHeadRows, fewer if
  // their lists are long.
  int32_t RowsOfRun(const StepBatch& batch, int64_t first) const;
  void SendLists(const StepBatch& batch, int64_t first, int32_t rows, HeadStaging& staging,
                 DeviceStream& stream);
  void Send(const StepBatch& batch, int64_t first, int32_t rows, HeadStaging& staging,
            DeviceStream& stream);
  void Fetch(const StepBatch& batch, int64_t first, int32_t rows, HeadStaging& staging,
             DeviceStream& stream);

  const T* hidden_ = nullptr;
  HeadWeights<T> weights_;
  int32_t width_ = 0, vocab_ = 0;
  int64_t bytes_ = 0;
  DeviceMemory memory_, workspace_;  // workspace_ is for the library's layer
  Input* input_ = nullptr;
  T* gathered_ = nullptr;  // [kHeadRows, hidden]
  uint64_t* scratch_ = nullptr;
  // The excluded tokens of the rows of a run, then the lists of their edits: [kHeadRows * vocab]
  // words, which hold the longest lists of at least one row.
  int32_t* lists_ = nullptr;
  Output output_ = {};
  std::unique_ptr<DeviceGraph> graph_;  // nullptr if there was no memory for it
};

template <typename T>
class CudaHead<T>::HeadStaging {
 private:
  friend class CudaHead;
  PinnedMemory pinned_;
  Input* input_ = nullptr;    // sent, like lists_
  int32_t* lists_ = nullptr;  // as in CudaHead
  Output output_ = {};        // fetched
};

}  // namespace sluice
