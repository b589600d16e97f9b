#include "engine/cuda/cuda_head.h"

#include <algorithm>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "engine/cuda/cutter.h"
#include "engine/cuda/dense_shapes.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/logits.h"
#include "kernels/cuda/projection.h"

namespace sluice {
namespace {

namespace cuda = kernels::cuda;

}  // namespace

template <typename T>
CudaHead<T>::CudaHead(const ModelConfig& config, int32_t most_rows, const HeadWeights<T>& weights)
    : weights_(weights),
      width_(config.hidden_size),
      vocab_(config.vocab_size),
      columns_(PaddedVocab(config.vocab_size)),
      most_rows_(most_rows) {}

template <typename T>
bool CudaHead<T>::Uses(Kind kind) const {
  if (kind == kWide) return most_rows_ > kNarrowRows;
  return kind != kScore || weights_.layer == nullptr;
}

template <typename T>
absl::StatusOr<std::unique_ptr<CudaHead<T>>> CudaHead<T>::Create(const ModelConfig& config,
                                                                 const T* hidden, int32_t most_rows,
                                                                 const HeadWeights<T>& weights,
                                                                 Device& device,
                                                                 DeviceStream& stream) {
  std::unique_ptr<CudaHead> head(new CudaHead(config, most_rows, weights));
  head->hidden_ = hidden;
  SLUICE_RETURN_IF_ERROR(head->Allocate(device));
  for (const Kind kind : {kWide, kNarrow, kScore, kDiverse}) {
    if (!head->Uses(kind)) continue;
    stream.BeginCapture();
    head->Launch(kind, stream);
    auto graph = stream.EndCapture();
    if (absl::IsResourceExhausted(graph.status())) continue;
    SLUICE_ASSIGN_OR_RETURN(head->graphs_[kind], std::move(graph));
  }
  return head;
}

// Every array has room for any single row, and for many typical rows.
template <typename T>
typename CudaHead<T>::Taken CudaHead<T>::Capacity() const {
  constexpr int64_t kLeast = 1 << 12, kLogitRows = 4, kTopRows = 1024;
  const int64_t vocab = vocab_, top_rows = std::min<int64_t>(most_rows_, kTopRows);
  return {.input = InputBytes(kWide) + CeilDiv(most_rows_, kNarrowRows) * InputBytes(kNarrow),
          .lists = std::max(kMaxWordsAToken * vocab, kLeast),
          .outcomes = most_rows_,
          .top = std::max(vocab, top_rows * MaxTop(kNarrow)),
          .logits = std::max(kLogitRows * vocab, kLeast)};
}

template <typename T>
int64_t CudaHead<T>::graph_bytes() const {
  int64_t bytes = 0;
  for (const auto& graph : graphs_) bytes += graph == nullptr ? 0 : graph->memory_bytes();
  return bytes;
}

template <typename T>
int64_t CudaHead<T>::Cut(void* memory) {
  const int64_t rows = Uses(kWide) ? kWideRows : kNarrowRows;
  Cutter cutter(memory);
  for (const Kind kind : {kWide, kNarrow, kManyTop, kScore, kDiverse}) {
    if (Uses(kind)) input_[kind] = CutInput(kind, cutter);
  }
  gathered_ = cutter.Take<T>(rows * width_);
  scratch_ = cutter.Take<uint64_t>(int64_t{kNarrowRows} * vocab_);
  lists_ = cutter.Take<int32_t>(Capacity().lists);
  const int64_t top = std::max({rows * MaxTop(kNarrow), int64_t{kNarrowRows} * vocab_,
                                int64_t{kDiverseRows} * MaxTop(kDiverse)});
  output_.outcomes = cutter.Take<cuda::SampleOutcome>(most_rows_);
  output_.top_ids = cutter.Take<int32_t>(top);
  output_.top_logprobs = cutter.Take<float>(top);
  output_.top_scores = cutter.Take<float>(top);
  output_.logits = cutter.Take<float>(rows * columns_);
  if (Uses(kScore)) {
    parts_ = cutter.Take<cuda::ScorePart>(cuda::ScoreParts(rows, vocab_));
    target_logits_ = cutter.Take<float>(rows);
  }
  factors_ = cutter.Take<double>(kDiverseRows * cuda::DiverseFactor(MaxTop(kDiverse)));
  return cutter.end();
}

template <typename T>
int64_t CudaHead<T>::BytesOf(const ModelConfig& config, int32_t most_rows,
                             const HeadWeights<T>& weights) {
  if (weights.weight == nullptr) return 0;
  CudaHead head(config, most_rows, weights);
  return head.Cut(nullptr) + head.WorkspaceBytes();
}

template <typename T>
size_t CudaHead<T>::WorkspaceBytes() const {
  return weights_.layer == nullptr ? 0 : weights_.layer->workspace_bytes();
}

template <typename T>
absl::Status CudaHead<T>::Allocate(Device& device) {
  bytes_ = Cut(nullptr);
  SLUICE_ASSIGN_OR_RETURN(memory_, device.Allocate(bytes_));
  Cut(memory_.get());
  const size_t workspace = WorkspaceBytes();
  if (workspace == 0) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(workspace_, device.Allocate(workspace));
  bytes_ += workspace;
  return absl::OkStatus();
}

template <typename T>
template <typename Cutter>
typename CudaHead<T>::Input CudaHead<T>::CutInput(Kind kind, Cutter& cutter) const {
  const int64_t rows = MaxRows(kind);
  return {.counts = cutter.template Take<int32_t>(3),
          .tiles = cutter.template Take<kernels::RowGroup>(CeilDiv(rows, cuda::kTileRows)),
          .row_ids = cutter.template Take<int32_t>(rows),
          .excluded_begin = cutter.template Take<int32_t>(rows + 1),
          .requests = cutter.template Take<cuda::SampleRequest>(rows),
          .edits = cutter.template Take<cuda::DrawEdits>(rows == kWideRows ? 0 : rows),
          .diverse = cutter.template Take<cuda::DiverseRequest>(kind == kDiverse ? rows : 0)};
}

template <typename T>
int64_t CudaHead<T>::InputBytes(Kind kind) const {
  Cutter cutter(nullptr);
  CutInput(kind, cutter);
  return cutter.end();
}

template <typename T>
int64_t CudaHead<T>::CutStaging(void* memory, HeadStaging* staging) const {
  const Taken capacity = Capacity();
  Cutter cutter(memory);
  staging->inputs_ = cutter.Take<char>(capacity.input);
  staging->lists_ = cutter.Take<int32_t>(capacity.lists);
  staging->output_.outcomes = cutter.Take<cuda::SampleOutcome>(capacity.outcomes);
  staging->output_.top_ids = cutter.Take<int32_t>(capacity.top);
  staging->output_.top_logprobs = cutter.Take<float>(capacity.top);
  staging->output_.top_scores = cutter.Take<float>(capacity.top);
  staging->output_.logits = cutter.Take<float>(capacity.logits);
  return cutter.end();
}

template <typename T>
int64_t CudaHead<T>::staging_bytes() const {
  HeadStaging unused;
  return CutStaging(nullptr, &unused);
}

template <typename T>
absl::StatusOr<std::unique_ptr<typename CudaHead<T>::HeadStaging>> CudaHead<T>::MakeStaging(
    Device& device) const {
  auto staging = std::make_unique<HeadStaging>();
  SLUICE_ASSIGN_OR_RETURN(staging->pinned_, device.AllocatePinned(staging_bytes()));
  CutStaging(staging->pinned_.get(), staging.get());
  staging->runs_.reserve(HeadStaging::kMaxRuns);
  return staging;
}

template <typename T>
void CudaHead<T>::Launch(Kind kind, DeviceStream& stream) const {
  const Input& input = input_[kind];
  const cuda::LiveRows rows = {input.counts, MaxRows(kind)};
  cuda::Embed<T>(
      stream,
      {.table = hidden_, .ids = input.row_ids, .dim = width_, .rows = rows, .out = gathered_});
  if (kind == kScore) return LaunchScore(stream);
  LaunchProducts(kind, stream);
  cuda::FinishLogits(stream, {.logits = output_.logits,
                              .n = vocab_,
                              .stride = columns_,
                              .soft_cap = weights_.soft_cap,
                              .excluded = lists_,
                              .begin = input.excluded_begin,
                              .rows = rows});
  cuda::Sample(stream, {.logits = output_.logits,
                        .n = vocab_,
                        .stride = columns_,
                        .requests = input.requests,
                        .rows = rows,
                        .max_top = MaxTop(kind),
                        .scratch = kind == kWide ? nullptr : scratch_,
                        .first = input.counts + 2,
                        .outcomes = output_.outcomes,
                        .top_ids = output_.top_ids,
                        .top_logprobs = output_.top_logprobs,
                        .top_scores = output_.top_scores});
  if (kind == kDiverse) LaunchDiverse(stream);
}

template <typename T>
void CudaHead<T>::LaunchDiverse(DeviceStream& stream) const {
  const Input& input = input_[kDiverse];
  cuda::Diversify<T>(stream, {.weight = weights_.weight,
                              .packed = weights_.layer == nullptr,
                              .k = width_,
                              .columns = columns_,
                              .requests = input.diverse,
                              .rows = {input.counts, kDiverseRows},
                              .first = input.counts + 2,
                              .outcomes = output_.outcomes,
                              .max_top = MaxTop(kDiverse),
                              .factors = factors_,
                              .top_ids = output_.top_ids,
                              .top_logprobs = output_.top_logprobs,
                              .top_scores = output_.top_scores});
}

template <typename T>
cuda::RowTiles CudaHead<T>::TilesOf(Kind kind) const {
  const auto most = static_cast<int32_t>(CeilDiv(MaxRows(kind), cuda::kTileRows));
  return {input_[kind].tiles, input_[kind].counts + 1, most, /*one_group=*/true,
          cuda::MaxTileRows(MaxRows(kind))};
}

template <typename T>
void CudaHead<T>::LaunchProducts(Kind kind, DeviceStream& stream) const {
  const int32_t rows = MaxRows(kind);
  if (weights_.layer != nullptr) {
    // Computes all rows; rows after the end of the run have the values of earlier runs.
    return weights_.layer->For(rows).Run({.x = gathered_,
                                          .weight = weights_.weight,
                                          .bias = nullptr,
                                          .rows = rows,
                                          .out = output_.logits,
                                          .workspace = workspace_.get()},
                                         stream);
  }
  cuda::Project<T, float>(stream, {.x = gathered_,
                                   .weight = weights_.weight,
                                   .bias = weights_.bias,
                                   .bias_stride = 0,
                                   .k = width_,
                                   .n = columns_,
                                   .tiles = TilesOf(kind),
                                   .accumulate = false,
                                   .out = output_.logits});
}

template <typename T>
void CudaHead<T>::LaunchScore(DeviceStream& stream) const {
  const Input& input = input_[kScore];
  const int32_t rows = MaxRows(kScore);
  cuda::Score<T>(stream, {.x = gathered_,
                          .weight = weights_.weight,
                          .bias = weights_.bias,
                          .k = width_,
                          .n = vocab_,
                          .soft_cap = weights_.soft_cap,
                          .tiles = TilesOf(kScore),
                          .requests = input.requests,
                          .rows = {input.counts, rows},
                          .parts = parts_,
                          .target_logits = target_logits_,
                          .first = input.counts + 2,
                          .outcomes = output_.outcomes});
}

template class CudaHead<float>;
template class CudaHead<cuda::BFloat16>;

}  // namespace sluice
