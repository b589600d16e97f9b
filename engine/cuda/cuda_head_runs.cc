// The runs of a head: their rows, and the data that is sent and fetched.
#include <algorithm>
#include <cstring>
#include <span>

#include "base/check.h"
#include "engine/cuda/cuda_head.h"
#include "engine/cuda/cutter.h"

namespace sluice {
namespace {

namespace cuda = kernels::cuda;

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

// Returns the size in words of the lists of a row, each of which has distinct tokens.
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
bool CudaHead<T>::IsScored(const SampledRow& row) const {
  return Uses(kScore) && row.target >= 0 && row.num_top == 0 && !WantsLogits(row) &&
         row.excluded.empty();
}

template <typename T>
bool CudaHead<T>::Allows(Kind kind, const SampledRow& row) const {
  if ((kind == kScore) != IsScored(row)) return false;
  if ((kind == kDiverse) != (row.diversity > 0)) return false;
  if (row.num_pool() > MaxTop(kind)) return false;
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
  if (std::ssize(staging.runs_) == HeadStaging::kMaxRuns) return run;
  run.end.input += InputBytes(kind);
  bool any_top = false;
  for (const SampledRow& row : batch.sampled().subspan(first)) {
    if (run.rows == MaxRows(kind) || !Allows(kind, row)) break;
    any_top |= row.num_top > 0;
    Taken end = run.end;
    ++end.outcomes;
    end.lists += ListWords(row, vocab_);
    if (FetchesByRow(kind)) {
      end.top += row.num_top;
    } else if (any_top) {
      end.top = run.begin.top + (run.rows + 1) * int64_t{MaxTop(kind)};
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
      fetch_top(top, int64_t{i} * MaxTop(run.kind), row.num_top);
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
    top += FetchesByRow(run.kind) ? row.num_top : MaxTop(run.kind);
    if (WantsLogits(row)) logits += vocab_;
  }
}

using HalfHead = CudaHead<cuda::BFloat16>;
template int32_t CudaHead<float>::Queue(const StepBatch&, int64_t, HeadStaging&, DeviceStream&);
template int32_t HalfHead::Queue(const StepBatch&, int64_t, HeadStaging&, DeviceStream&);
template void CudaHead<float>::Deliver(const StepBatch&, const HeadStaging&) const;
template void HalfHead::Deliver(const StepBatch&, const HeadStaging&) const;

}  // namespace sluice
