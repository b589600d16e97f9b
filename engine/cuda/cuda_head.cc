#include "engine/cuda/cuda_head.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/size_of.h"
#include "base/status_macros.h"
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
    end_ += (count * kSizeOf<U> + 255) / 256 * 256;
    return place;
  }
  int64_t end() const { return end_; }

 private:
  char* memory_;
  int64_t end_ = 0;
};

// Writes lists one after another to pinned memory, which is then sent to the device.
class ListWriter {
 public:
  ListWriter(int32_t* pinned, const int32_t* device) : pinned_(pinned), device_(device) {}
  // Writes a list and returns its future address on the device.
  template <typename U>
  const U* Write(std::span<const U> list) {
    static_assert(sizeof(U) % sizeof(int32_t) == 0 && alignof(U) == alignof(int32_t));
    const int64_t place = end_;
    if (!list.empty()) std::memcpy(pinned_ + place, list.data(), list.size_bytes());
    end_ += list.size_bytes() / sizeof(int32_t);
    return reinterpret_cast<const U*>(device_ + place);
  }
  int64_t end() const { return end_; }  // in words, like all sizes here

 private:
  int32_t* pinned_;
  const int32_t* device_;
  int64_t end_ = 0;
};

// Returns nullptr if no token is drawn, or without edits.
const kernels::LogitEdits* EditsOf(const SampledRow& row) {
  return row.target < 0 ? row.edits : nullptr;
}

// The most words for a token in the lists of a row, each of which has distinct tokens.
constexpr int64_t kMostWordsAToken = 7;
int64_t ListWords(const SampledRow& row, int32_t vocab) {
  const auto words = [vocab](auto list) -> int64_t {
    SLUICE_CHECK(std::ssize(list) <= vocab);
    return list.size_bytes() / sizeof(int32_t);
  };
  const kernels::LogitEdits* const edits = EditsOf(row);
  if (edits == nullptr) return words(row.excluded);
  return words(row.excluded) + words(edits->seen) + words(edits->bias) + words(edits->banned) +
         words(edits->allowed);
}

cuda::DrawEdits Write(const kernels::LogitEdits& edits, ListWriter* lists) {
  const auto count = [](auto list) -> int32_t { return std::ssize(list); };
  return {.seen = lists->Write(edits.seen),
          .bias = lists->Write(edits.bias),
          .banned = lists->Write(edits.banned),
          .allowed = lists->Write(edits.allowed),
          .seen_count = count(edits.seen),
          .bias_count = count(edits.bias),
          .banned_count = count(edits.banned),
          .allowed_count = count(edits.allowed),
          .repetition = edits.repetition,
          .presence = edits.presence,
          .frequency = edits.frequency};
}

cuda::SampleRequest RequestOf(const SampledRow& row) {
  return {.params = row.params, .target = row.target, .num_top = row.num_top};
}

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<CudaHead<T>>> CudaHead<T>::Create(const ModelConfig& config,
                                                                 const T* hidden,
                                                                 const HeadWeights<T>& weights,
                                                                 Device& device,
                                                                 DeviceStream& stream) {
  std::unique_ptr<CudaHead> head(new CudaHead);
  head->hidden_ = hidden;
  head->weights_ = weights;
  head->width_ = config.hidden_size;
  head->vocab_ = config.vocab_size;
  SLUICE_RETURN_IF_ERROR(head->Allocate(device));
  stream.BeginCapture();
  head->Launch(stream);
  auto graph = stream.EndCapture();
  if (absl::IsResourceExhausted(graph.status())) return head;
  SLUICE_ASSIGN_OR_RETURN(head->graph_, std::move(graph));
  stream.Upload(*head->graph_);
  SLUICE_RETURN_IF_ERROR(stream.Synchronize());
  return head;
}

template <typename T>
absl::Status CudaHead<T>::Allocate(Device& device) {
  const int64_t all = int64_t{kHeadRows} * vocab_;
  const auto cut = [&](void* memory) {
    Cutter cutter(memory);
    input_ = cutter.Take<Input>(1);
    gathered_ = cutter.Take<T>(int64_t{kHeadRows} * width_);
    scratch_ = cutter.Take<uint64_t>(all);
    lists_ = cutter.Take<int32_t>(all);
    CutOutput(cutter, &output_);
    return cutter.end();
  };
  bytes_ = cut(nullptr);
  SLUICE_ASSIGN_OR_RETURN(memory_, device.Allocate(bytes_));
  cut(memory_.get());
  const size_t workspace = weights_.layer == nullptr ? 0 : weights_.layer->workspace_bytes();
  if (workspace == 0) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(workspace_, device.Allocate(workspace));
  bytes_ += workspace;
  return absl::OkStatus();
}

template <typename T>
template <typename Cutter>
void CudaHead<T>::CutOutput(Cutter& cutter, Output* output) const {
  const int64_t all = int64_t{kHeadRows} * vocab_;
  output->outcomes = cutter.template Take<cuda::SampleOutcome>(kHeadRows);
  output->top_ids = cutter.template Take<int32_t>(all);
  output->top_logprobs = cutter.template Take<float>(all);
  output->logits = cutter.template Take<float>(all);
}

template <typename T>
absl::StatusOr<std::unique_ptr<typename CudaHead<T>::HeadStaging>> CudaHead<T>::MakeStaging(
    Device& device) const {
  auto staging = std::make_unique<HeadStaging>();
  const auto cut = [&](void* memory) {
    Cutter cutter(memory);
    staging->input_ = cutter.Take<Input>(1);
    staging->lists_ = cutter.Take<int32_t>(int64_t{kHeadRows} * vocab_);
    CutOutput(cutter, &staging->output_);
    return cutter.end();
  };
  SLUICE_ASSIGN_OR_RETURN(staging->pinned_, device.AllocatePinned(cut(nullptr)));
  cut(staging->pinned_.get());
  return staging;
}

template <typename T>
void CudaHead<T>::Launch(DeviceStream& stream) const {
  const cuda::LiveRows rows = {&input_->rows, kHeadRows};
  cuda::Embed<T>(
      stream,
      {.table = hidden_, .ids = input_->row_ids, .dim = width_, .rows = rows, .out = gathered_});
  LaunchProducts(stream);
  cuda::FinishLogits(stream, {.logits = output_.logits,
                              .n = vocab_,
                              .soft_cap = weights_.soft_cap,
                              .excluded = lists_,
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
void CudaHead<T>::LaunchProducts(DeviceStream& stream) const {
  if (weights_.layer != nullptr) {
    // Computes all rows; those beyond the run have the values of earlier runs.
    return weights_.layer->Run({.x = gathered_,
                                .weight = weights_.weight,
                                .bias = nullptr,
                                .rows = kHeadRows,
                                .out = output_.logits,
                                .workspace = workspace_.get()},
                               stream);
  }
  cuda::Project<T, float>(stream, {.x = gathered_,
                                   .weight = weights_.weight,
                                   .bias = weights_.bias,
                                   .bias_stride = 0,
                                   .k = width_,
                                   .n = vocab_,
                                   .tiles = {input_->tiles, &input_->tile_count, kTiles},
                                   .accumulate = false,
                                   .out = output_.logits});
}

template <typename T>
int32_t CudaHead<T>::Queue(const StepBatch& batch, int64_t first, HeadStaging& staging,
                           DeviceStream& stream) {
  const int32_t rows = RowsOfRun(batch, first);
  if (rows == 0) return 0;
  Send(batch, first, rows, staging, stream);
  if (graph_ != nullptr) {
    stream.Run(*graph_);
  } else {
    Launch(stream);
  }
  Fetch(batch, first, rows, staging, stream);
  return rows;
}

template <typename T>
void CudaHead<T>::Send(const StepBatch& batch, int64_t first, int32_t rows, HeadStaging& staging,
                       DeviceStream& stream) {
  Input& sent = *staging.input_;
  sent.rows = rows;
  const kernels::RowGroup all_rows = {0, 0, rows};
  sent.tile_count = cuda::CutIntoRowTiles({&all_rows, 1}, sent.tiles);
  for (int32_t i = 0; i < rows; ++i) {
    sent.row_ids[i] = batch.sampled_rows()[first + i];
    sent.requests[i] = RequestOf(batch.sampled()[first + i]);
  }
  SendLists(batch, first, rows, staging, stream);
  stream.CopyToDevice(input_, &sent, sizeof(Input));
}

template <typename T>
int32_t CudaHead<T>::RowsOfRun(const StepBatch& batch, int64_t first) const {
  static_assert(kMostWordsAToken <= kHeadRows);
  int64_t words = 0;
  int32_t rows = 0;
  for (const SampledRow& row : batch.sampled().subspan(first)) {
    words += ListWords(row, vocab_);
    if (rows == kHeadRows || words > int64_t{kHeadRows} * vocab_) break;
    ++rows;
  }
  return rows;
}

template <typename T>
void CudaHead<T>::SendLists(const StepBatch& batch, int64_t first, int32_t rows,
                            HeadStaging& staging, DeviceStream& stream) {
  Input& sent = *staging.input_;
  ListWriter lists(staging.lists_, lists_);
  sent.excluded_begin[0] = 0;
  for (int32_t i = 0; i < rows; ++i) {
    lists.Write(batch.sampled()[first + i].excluded);
    sent.excluded_begin[i + 1] = lists.end();
  }
  for (int32_t i = 0; i < rows; ++i) {
    const kernels::LogitEdits* const edits = EditsOf(batch.sampled()[first + i]);
    if (edits == nullptr) continue;
    sent.edits[i] = Write(*edits, &lists);
    sent.requests[i].edits = input_->edits + i;
  }
  if (lists.end() > 0) {
    stream.CopyToDevice(lists_, staging.lists_, lists.end() * sizeof(int32_t));
  }
}

template <typename T>
void CudaHead<T>::Fetch(const StepBatch& batch, int64_t first, int32_t rows, HeadStaging& staging,
                        DeviceStream& stream) {
  const Output& fetched = staging.output_;
  stream.CopyToHost(fetched.outcomes, output_.outcomes, rows * sizeof(cuda::SampleOutcome));
  for (int32_t i = 0; i < rows; ++i) {
    const SampledRow& row = batch.sampled()[first + i];
    const int64_t place = int64_t{i} * vocab_;
    if (row.num_top > 0) {
      const size_t bytes = row.num_top * sizeof(int32_t);
      stream.CopyToHost(fetched.top_ids + place, output_.top_ids + place, bytes);
      stream.CopyToHost(fetched.top_logprobs + place, output_.top_logprobs + place, bytes);
    }
    if (row.logits != nullptr || row.top_scores != nullptr) {
      stream.CopyToHost(fetched.logits + place, output_.logits + place, vocab_ * sizeof(float));
    }
  }
}

template <typename T>
void CudaHead<T>::Deliver(const StepBatch& batch, int64_t first, int32_t rows,
                          const HeadStaging& staging) const {
  const Output& fetched = staging.output_;
  for (int32_t i = 0; i < rows; ++i) {
    const SampledRow& row = batch.sampled()[first + i];
    const cuda::SampleOutcome& outcome = fetched.outcomes[i];
    const int64_t place = int64_t{i} * vocab_;
    *row.result = {outcome.token, outcome.logprob};
    if (row.logits != nullptr) std::copy_n(fetched.logits + place, vocab_, row.logits);
    if (outcome.token < 0) continue;  // there are no candidates then
    std::copy_n(fetched.top_ids + place, row.num_top, row.top_ids);
    std::copy_n(fetched.top_logprobs + place, row.num_top, row.top_logprobs);
    for (int32_t k = 0; row.top_scores != nullptr && k < row.num_top; ++k) {
      row.top_scores[k] = fetched.logits[place + row.top_ids[k]];
    }
  }
}

template class CudaHead<float>;
template class CudaHead<cuda::BFloat16>;

}  // namespace sluice
