#include "engine/cuda/cuda_head.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/size_of.h"
#include "base/status_macros.h"
#include "engine/cuda/dense_shapes.h"
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
  return {.params = row.params, .target = row.target, .num_top = row.num_pool()};
}

bool WantsLogits(const SampledRow& row) { return row.logits != nullptr || row.peaks != nullptr; }

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

// Every array has room for any one row, and for many usual ones.
template <typename T>
typename CudaHead<T>::Taken CudaHead<T>::Capacity() const {
  constexpr int64_t kLeast = 1 << 12, kLogitRows = 4, kTopRows = 1024;
  const int64_t vocab = vocab_, top_rows = std::min<int64_t>(most_rows_, kTopRows);
  return {
      .input = InputBytes(kWide) + kernels::CeilDiv(most_rows_, kNarrowRows) * InputBytes(kNarrow),
      .lists = std::max(kMostWordsAToken * vocab, kLeast),
      .outcomes = most_rows_,
      .top = std::max(vocab, top_rows * MostTop(kNarrow)),
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
  const int64_t top = std::max({rows * MostTop(kNarrow), int64_t{kNarrowRows} * vocab_,
                                int64_t{kDiverseRows} * MostTop(kDiverse)});
  output_.outcomes = cutter.Take<cuda::SampleOutcome>(most_rows_);
  output_.top_ids = cutter.Take<int32_t>(top);
  output_.top_logprobs = cutter.Take<float>(top);
  output_.top_scores = cutter.Take<float>(top);
  output_.logits = cutter.Take<float>(rows * columns_);
  if (Uses(kScore)) {
    parts_ = cutter.Take<cuda::ScorePart>(cuda::ScoreParts(rows, vocab_));
    target_logits_ = cutter.Take<float>(rows);
  }
  factors_ = cutter.Take<double>(kDiverseRows * cuda::DiverseFactor(MostTop(kDiverse)));
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
  return weights_.layer == nullptr ? cuda::SplitSumsBytes(width_)
                                   : weights_.layer->workspace_bytes();
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
  const int64_t rows = MostRows(kind);
  return {.counts = cutter.template Take<int32_t>(3),
          .split_counters = cutter.template Take<int32_t>(SplitCounters()),
          .tiles = cutter.template Take<kernels::RowGroup>(kernels::CeilDiv(rows, cuda::kTileRows)),
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
  staging->runs_.reserve(HeadStaging::kMostRuns);
  return staging;
}

template <typename T>
void CudaHead<T>::Launch(Kind kind, DeviceStream& stream) const {
  const Input& input = input_[kind];
  const cuda::LiveRows rows = {input.counts, MostRows(kind)};
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
                        .max_top = MostTop(kind),
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
                              .max_top = MostTop(kDiverse),
                              .factors = factors_,
                              .top_ids = output_.top_ids,
                              .top_logprobs = output_.top_logprobs,
                              .top_scores = output_.top_scores});
}

template <typename T>
cuda::RowTiles CudaHead<T>::TilesOf(Kind kind) const {
  const auto most = static_cast<int32_t>(kernels::CeilDiv(MostRows(kind), cuda::kTileRows));
  return {input_[kind].tiles, input_[kind].counts + 1, most, /*one_group=*/true};
}

template <typename T>
void CudaHead<T>::LaunchProducts(Kind kind, DeviceStream& stream) const {
  const int32_t rows = MostRows(kind);
  if (weights_.layer != nullptr) {
    // Computes all rows; those beyond the run have the values of earlier runs.
    return weights_.layer->Run({.x = gathered_,
                                .weight = weights_.weight,
                                .bias = nullptr,
                                .rows = rows,
                                .out = output_.logits,
                                .workspace = workspace_.get()},
                               stream);
  }
  const Input& input = input_[kind];
  cuda::Project<T, float>(stream,
                          {.x = gathered_,
                           .weight = weights_.weight,
                           .bias = weights_.bias,
                           .bias_stride = 0,
                           .k = width_,
                           .n = columns_,
                           .tiles = TilesOf(kind),
                           .accumulate = false,
                           .out = output_.logits,
                           .split = {static_cast<float*>(workspace_.get()), input.split_counters}});
}

template <typename T>
void CudaHead<T>::LaunchScore(DeviceStream& stream) const {
  const Input& input = input_[kScore];
  const int32_t rows = MostRows(kScore);
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

template <typename T>
bool CudaHead<T>::IsScored(const SampledRow& row) const {
  return Uses(kScore) && row.target >= 0 && row.num_top == 0 && !WantsLogits(row) &&
         row.excluded.empty();
}

template <typename T>
bool CudaHead<T>::Allows(Kind kind, const SampledRow& row) const {
  if ((kind == kScore) != IsScored(row)) return false;
  if ((kind == kDiverse) != (row.diversity > 0)) return false;
  if (row.num_pool() > MostTop(kind)) return false;
  if (kind != kWide) return true;
  return EditsOf(row) == nullptr && !WantsLogits(row);
}

template <typename T>
int32_t CudaHead<T>::Queue(const StepBatch& batch, int64_t first, HeadStaging& staging,
                           DeviceStream& stream) {
  staging.runs_.clear();
  staging.taken_ = {};
  int64_t next = first;
  for (Run run = NextRun(batch, next, staging); run.rows > 0; run = NextRun(batch, next, staging)) {
    Send(batch, run, staging, stream);
    if (graphs_[run.kind] != nullptr) {
      stream.Run(*graphs_[run.kind]);
    } else {
      Launch(run.kind, stream);
    }
    Fetch(batch, run, staging, stream);
    staging.runs_.push_back(run);
    staging.taken_ = run.end;
    next += run.rows;
  }
  SLUICE_CHECK(next > first || next == std::ssize(batch.sampled()));
  return next - first;
}

template <typename T>
typename CudaHead<T>::Run CudaHead<T>::NextRun(const StepBatch& batch, int64_t first,
                                               const HeadStaging& staging) const {
  const Run score = RunOf(kScore, batch, first, staging);
  if (score.rows > 0) return score;
  const Run diverse = RunOf(kDiverse, batch, first, staging);
  if (diverse.rows > 0) return diverse;
  const Run narrow = RunOf(kNarrow, batch, first, staging);
  if (narrow.rows == 0) return RunOf(kManyTop, batch, first, staging);
  if (narrow.rows < kNarrowRows || !Uses(kWide)) return narrow;
  const Run wide = RunOf(kWide, batch, first, staging);
  return wide.rows > narrow.rows ? wide : narrow;
}

template <typename T>
typename CudaHead<T>::Run CudaHead<T>::RunOf(Kind kind, const StepBatch& batch, int64_t first,
                                             const HeadStaging& staging) const {
  const Taken capacity = Capacity();
  Run run = {.kind = kind, .first = first, .begin = staging.taken_, .end = staging.taken_};
  if (std::ssize(staging.runs_) == HeadStaging::kMostRuns) return run;
  run.end.input += InputBytes(kind);
  bool any_top = false;
  for (const SampledRow& row : batch.sampled().subspan(first)) {
    if (run.rows == MostRows(kind) || !Allows(kind, row)) break;
    any_top |= row.num_top > 0;
    Taken end = run.end;
    ++end.outcomes;
    end.lists += ListWords(row, vocab_);
    if (FetchesByRow(kind)) {
      end.top += row.num_top;
    } else if (any_top) {
      end.top = run.begin.top + (run.rows + 1) * int64_t{MostTop(kind)};
    }
    if (WantsLogits(row)) end.logits += vocab_;
    const bool fits = end.input <= capacity.input && end.lists <= capacity.lists &&
                      end.outcomes <= capacity.outcomes && end.top <= capacity.top &&
                      end.logits <= capacity.logits;
    if (!fits) break;
    run.end = end;
    ++run.rows;
  }
  return run;
}

template <typename T>
void CudaHead<T>::Send(const StepBatch& batch, const Run& run, HeadStaging& staging,
                       DeviceStream& stream) {
  Cutter cutter(staging.inputs_ + run.begin.input);
  const Input sent = CutInput(run.kind, cutter);
  const kernels::RowGroup all = {0, 0, run.rows};
  std::memset(sent.split_counters, 0, SplitCounters() * sizeof(int32_t));
  sent.counts[0] = run.rows;
  sent.counts[2] = run.first;
  sent.counts[1] = cuda::CutIntoRowTiles({&all, 1}, sent.tiles);
  for (int32_t i = 0; i < run.rows; ++i) {
    sent.row_ids[i] = batch.sampled_rows()[run.first + i];
    const SampledRow& row = batch.sampled()[run.first + i];
    sent.requests[i] = RequestOf(row);
    if (run.kind == kDiverse) sent.diverse[i] = {row.diversity, row.pool, row.num_top};
  }
  SendLists(batch, run, sent, staging, stream);
  stream.CopyToDevice(input_[run.kind].counts, sent.counts, InputBytes(run.kind));
}

template <typename T>
void CudaHead<T>::SendLists(const StepBatch& batch, const Run& run, const Input& sent,
                            HeadStaging& staging, DeviceStream& stream) {
  int32_t* const pinned = staging.lists_ + run.begin.lists;
  ListWriter lists(pinned, lists_);
  const auto rows = batch.sampled().subspan(run.first, run.rows);
  sent.excluded_begin[0] = 0;
  for (int32_t i = 0; i < run.rows; ++i) {
    lists.Write(rows[i].excluded);
    sent.excluded_begin[i + 1] = lists.end();
  }
  for (int32_t i = 0; i < run.rows; ++i) {
    const kernels::LogitEdits* const edits = EditsOf(rows[i]);
    if (edits == nullptr) continue;
    sent.edits[i] = Write(*edits, &lists);
    sent.requests[i].edits = input_[run.kind].edits + i;
  }
  if (lists.end() > 0) stream.CopyToDevice(lists_, pinned, lists.end() * sizeof(int32_t));
}

template <typename T>
void CudaHead<T>::Fetch(const StepBatch& batch, const Run& run, HeadStaging& staging,
                        DeviceStream& stream) {
  const Output& fetched = staging.output_;
  stream.CopyToHost(fetched.outcomes + run.begin.outcomes, output_.outcomes + run.first,
                    run.rows * sizeof(cuda::SampleOutcome));
  const auto rows = batch.sampled().subspan(run.first, run.rows);
  const bool scores = std::any_of(rows.begin(), rows.end(),
                                  [](const SampledRow& row) { return row.top_scores != nullptr; });
  const auto fetch_top = [&](int64_t to, int64_t from, int64_t count) {
    if (count == 0) return;
    if (scores) {
      stream.CopyToHost(fetched.top_scores + to, output_.top_scores + from, count * sizeof(float));
    }
    stream.CopyToHost(fetched.top_ids + to, output_.top_ids + from, count * sizeof(int32_t));
    stream.CopyToHost(fetched.top_logprobs + to, output_.top_logprobs + from,
                      count * sizeof(float));
  };
  int64_t top = run.begin.top, logits = run.begin.logits;
  if (!FetchesByRow(run.kind)) fetch_top(top, 0, run.end.top - top);
  for (int32_t i = 0; i < run.rows; ++i) {
    const SampledRow& row = batch.sampled()[run.first + i];
    if (FetchesByRow(run.kind)) {
      fetch_top(top, int64_t{i} * MostTop(run.kind), row.num_top);
      top += row.num_top;
    }
    if (WantsLogits(row)) {
      stream.CopyToHost(fetched.logits + logits, output_.logits + int64_t{i} * columns_,
                        vocab_ * sizeof(float));
      logits += vocab_;
    }
  }
}

template <typename T>
void CudaHead<T>::Deliver(const StepBatch& batch, const HeadStaging& staging) const {
  for (const Run& run : staging.runs_) DeliverRun(batch, run, staging);
}

template <typename T>
void CudaHead<T>::DeliverRun(const StepBatch& batch, const Run& run,
                             const HeadStaging& staging) const {
  const Output& fetched = staging.output_;
  int64_t top = run.begin.top, logits = run.begin.logits;
  for (int32_t i = 0; i < run.rows; ++i) {
    const SampledRow& row = batch.sampled()[run.first + i];
    const cuda::SampleOutcome& outcome = fetched.outcomes[run.begin.outcomes + i];
    *row.result = {outcome.token, outcome.logprob};
    if (row.logits != nullptr) std::copy_n(fetched.logits + logits, vocab_, row.logits);
    if (row.peaks != nullptr) RaiseTo(fetched.logits + logits, 0, vocab_, row.peaks);
    if (outcome.token >= 0) {  // otherwise there are no candidates
      std::copy_n(fetched.top_ids + top, row.num_top, row.top_ids);
      std::copy_n(fetched.top_logprobs + top, row.num_top, row.top_logprobs);
      if (row.top_scores != nullptr) {
        std::copy_n(fetched.top_scores + top, row.num_top, row.top_scores);
      }
    }
    top += FetchesByRow(run.kind) ? row.num_top : MostTop(run.kind);
    if (WantsLogits(row)) logits += vocab_;
  }
}

template class CudaHead<float>;
template class CudaHead<cuda::BFloat16>;

}  // namespace sluice
