#include "engine/cuda/cuda_head.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/check.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/logits.h"
#include "kernels/cuda/projection.h"

namespace sluice {
namespace {

namespace cuda = kernels::cuda;

// Cuts one allocation into arrays.
class Cutter {
 public:
  explicit Cutter(void* memory) : memory_(static_cast<char*>(memory)) {}
  template <typename U>
  U* Take(int64_t count) {
    U* place = reinterpret_cast<U*>(memory_ + end_);
    end_ += (count * static_cast<int64_t>(sizeof(U)) + 255) / 256 * 256;
    return place;
  }
  int64_t end() const { return end_; }

 private:
  char* memory_;
  int64_t end_ = 0;
};

cuda::SampleRequest RequestOf(const SampledRow& row) {
  return {.seed = row.params.seed,
          .token_index = row.params.token_index,
          .sample = row.params.sample,
          .temperature = row.params.temperature,
          .top_k = row.params.top_k,
          .top_p = row.params.top_p,
          .min_p = row.params.min_p,
          .target = row.target,
          .num_top = row.num_top};
}

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<CudaHead<T>>> CudaHead<T>::Create(const ModelConfig& config,
                                                                 const T* hidden,
                                                                 const HeadWeights<T>& weights,
                                                                 Device& device,
                                                                 DeviceStream& stream) {
  std::unique_ptr<CudaHead> head(new CudaHead);
  head->width_ = static_cast<int32_t>(config.hidden_size);
  head->vocab_ = static_cast<int32_t>(config.vocab_size);
  if (absl::Status status = head->Allocate(device); !status.ok()) return status;
  stream.BeginCapture();
  head->Record(hidden, weights, stream);
  auto graph = stream.EndCapture();
  if (!graph.ok()) return graph.status();
  head->graph_ = *std::move(graph);
  stream.Upload(*head->graph_);
  if (absl::Status status = stream.Synchronize(); !status.ok()) return status;
  return head;
}

template <typename T>
absl::Status CudaHead<T>::Allocate(Device& device) {
  const int64_t all = int64_t{kHeadRows} * vocab_;
  const auto cut_output = [all](Cutter& cutter) {
    Output output;
    output.outcomes = cutter.Take<cuda::SampleOutcome>(kHeadRows);
    output.top_ids = cutter.Take<int32_t>(all);
    output.top_logprobs = cutter.Take<float>(all);
    output.logits = cutter.Take<float>(all);
    return output;
  };
  const auto cut = [&](void* memory) {
    Cutter cutter(memory);
    input_ = cutter.Take<Input>(1);
    gathered_ = cutter.Take<T>(int64_t{kHeadRows} * width_);
    tile_ = cutter.Take<kernels::RowGroup>(kHeadRows);
    tile_count_ = cutter.Take<int32_t>(1);
    scratch_ = cutter.Take<uint64_t>(all);
    excluded_ = cutter.Take<int32_t>(all);
    output_ = cut_output(cutter);
    return cutter.end();
  };
  const auto cut_pinned = [&](void* memory) {
    Cutter cutter(memory);
    sent_ = cutter.Take<Input>(1);
    sent_excluded_ = cutter.Take<int32_t>(all);
    fetched_ = cut_output(cutter);
    return cutter.end();
  };
  bytes_ = cut(nullptr);
  auto memory = device.Allocate(static_cast<size_t>(bytes_));
  if (!memory.ok()) return memory.status();
  auto pinned = device.AllocatePinned(static_cast<size_t>(cut_pinned(nullptr)));
  if (!pinned.ok()) return pinned.status();
  memory_ = *std::move(memory);
  pinned_ = *std::move(pinned);
  cut(memory_.get());
  cut_pinned(pinned_.get());
  return absl::OkStatus();
}

template <typename T>
void CudaHead<T>::Record(const T* hidden, const HeadWeights<T>& weights, DeviceStream& stream) {
  const cuda::LiveRows rows = {&input_->rows, kHeadRows};
  cuda::BuildRowTiles(stream, {.groups = &input_->all_rows,
                               .group_count = &input_->one,
                               .tiles = tile_,
                               .tile_count = tile_count_});
  cuda::Embed<T>(
      stream,
      {.table = hidden, .ids = input_->row_ids, .dim = width_, .rows = rows, .out = gathered_});
  cuda::Project<T, float>(stream, {.x = gathered_,
                                   .weight = weights.weight,
                                   .bias = weights.bias,
                                   .bias_stride = 0,
                                   .k = width_,
                                   .n = vocab_,
                                   .tiles = {tile_, tile_count_, 1},
                                   .accumulate = false,
                                   .out = output_.logits});
  cuda::FinishLogits(stream, {.logits = output_.logits,
                              .n = vocab_,
                              .soft_cap = weights.soft_cap,
                              .excluded = excluded_,
                              .begin = input_->excluded_begin,
                              .rows = rows});
  cuda::Sample(stream, {.logits = output_.logits,
                        .n = vocab_,
                        .requests = input_->requests,
                        .rows = rows,
                        .max_top = vocab_,
                        .scratch = scratch_,
                        .outcomes = output_.outcomes,
                        .top_ids = output_.top_ids,
                        .top_logprobs = output_.top_logprobs});
}

template <typename T>
absl::Status CudaHead<T>::Answer(const StepBatch& batch, DeviceStream& stream) {
  const auto total = static_cast<int64_t>(batch.sampled().size());
  for (int64_t first = 0; first < total; first += kHeadRows) {
    const auto rows = static_cast<int32_t>(std::min<int64_t>(kHeadRows, total - first));
    Send(batch, first, rows, stream);
    stream.Run(*graph_);
    Fetch(batch, first, rows, stream);
    if (absl::Status status = stream.Synchronize(); !status.ok()) return status;
    Deliver(batch, first, rows);
  }
  return stream.Synchronize();
}

template <typename T>
void CudaHead<T>::Send(const StepBatch& batch, int64_t first, int32_t rows, DeviceStream& stream) {
  sent_->rows = rows;
  sent_->one = 1;
  sent_->all_rows = {0, 0, rows};
  for (int32_t i = 0; i < rows; ++i) {
    sent_->row_ids[i] = batch.sampled_rows()[first + i];
    sent_->requests[i] = RequestOf(batch.sampled()[first + i]);
  }
  SendExcluded(batch, first, rows, stream);
  stream.CopyToDevice(input_, sent_, sizeof(Input));
}

template <typename T>
void CudaHead<T>::SendExcluded(const StepBatch& batch, int64_t first, int32_t rows,
                               DeviceStream& stream) {
  int32_t end = 0;
  sent_->excluded_begin[0] = 0;
  for (int32_t i = 0; i < rows; ++i) {
    const std::span<const int32_t> excluded = batch.sampled()[first + i].excluded;
    SLUICE_CHECK(excluded.size() <= static_cast<size_t>(vocab_));
    std::copy(excluded.begin(), excluded.end(), sent_excluded_ + end);
    end += static_cast<int32_t>(excluded.size());
    sent_->excluded_begin[i + 1] = end;
  }
  if (end > 0) stream.CopyToDevice(excluded_, sent_excluded_, end * sizeof(int32_t));
}

template <typename T>
void CudaHead<T>::Fetch(const StepBatch& batch, int64_t first, int32_t rows, DeviceStream& stream) {
  stream.CopyToHost(fetched_.outcomes, output_.outcomes, rows * sizeof(cuda::SampleOutcome));
  for (int32_t i = 0; i < rows; ++i) {
    const SampledRow& row = batch.sampled()[first + i];
    const int64_t place = int64_t{i} * vocab_;
    if (row.num_top > 0) {
      const size_t bytes = row.num_top * sizeof(int32_t);
      stream.CopyToHost(fetched_.top_ids + place, output_.top_ids + place, bytes);
      stream.CopyToHost(fetched_.top_logprobs + place, output_.top_logprobs + place, bytes);
    }
    if (row.logits != nullptr || row.top_scores != nullptr) {
      stream.CopyToHost(fetched_.logits + place, output_.logits + place, vocab_ * sizeof(float));
    }
  }
}

template <typename T>
void CudaHead<T>::Deliver(const StepBatch& batch, int64_t first, int32_t rows) const {
  for (int32_t i = 0; i < rows; ++i) {
    const SampledRow& row = batch.sampled()[first + i];
    const cuda::SampleOutcome& outcome = fetched_.outcomes[i];
    const int64_t place = int64_t{i} * vocab_;
    *row.result = {outcome.token, outcome.logprob};
    if (row.logits != nullptr) std::copy_n(fetched_.logits + place, vocab_, row.logits);
    if (outcome.token < 0) continue;  // without candidates
    std::copy_n(fetched_.top_ids + place, row.num_top, row.top_ids);
    std::copy_n(fetched_.top_logprobs + place, row.num_top, row.top_logprobs);
    for (int32_t k = 0; row.top_scores != nullptr && k < row.num_top; ++k) {
      row.top_scores[k] = fetched_.logits[place + row.top_ids[k]];
    }
  }
}

template class CudaHead<float>;
template class CudaHead<cuda::BFloat16>;

}  // namespace sluice
