#include "engine/cpu/head_op.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "base/ceil_div.h"
#include "kernels/choose_diverse.h"
#include "kernels/cpu/head.h"
#include "kernels/cpu/sample.h"
#include "kernels/diversity.h"

namespace sluice {
namespace {

using kernels::kHeadRows;

// Returns whether the answer of the row needs all of its logits.
bool NeedsLogits(const SampledRow& row, int64_t vocab) {
  if (row.logits != nullptr || row.peaks != nullptr) return true;
  if (row.num_pool() > kernels::kMaxBest) return true;
  if (row.target >= 0) return false;
  const int64_t candidates = kernels::CandidatesToDraw(row.params, vocab);
  return row.edits != nullptr || candidates == 0 || candidates > kernels::kMaxBest;
}

// Returns the number of most likely tokens that the row needs if it does not need all logits.
int64_t BestOf(const SampledRow& row, int64_t vocab) {
  const int64_t top = row.num_pool();
  return row.target >= 0 ? top : std::max(top, kernels::CandidatesToDraw(row.params, vocab));
}

// Reduces the best tokens in the row's lists to the diverse tokens among them.
void Diversify(const SampledRow& row, const ItemHead& items) {
  if (!(row.diversity > 0)) return;
  int32_t chosen[kernels::kMaxDiverse];
  const auto product = [&](int64_t i, int64_t j) {
    return items.Product(row.top_ids[i], row.top_ids[j]);
  };
  const std::span<int32_t> places(chosen, static_cast<size_t>(row.num_top));
  kernels::ChooseDiverse({row.top_scores, static_cast<size_t>(row.pool)}, row.diversity, product,
                         places, row.diverse_scratch);
  const auto keep = [&](auto* list) {
    std::array<std::remove_reference_t<decltype(*list)>, kernels::kMaxDiverse> kept;
    for (size_t i = 0; i < places.size(); ++i) kept[i] = list[places[i]];
    std::copy_n(kept.begin(), places.size(), list);
  };
  keep(row.top_ids);
  keep(row.top_logprobs);
  keep(row.top_scores);
}

constexpr kernels::SampleResult kNoToken = {-1, std::numeric_limits<float>::quiet_NaN()};

class CpuHead {
 public:
  CpuHead(BufferId in, kernels::PackedWeights head, HeadFinish finish)
      : in_(in), head_(std::move(head)), finish_(std::move(finish)) {}

  void operator()(const StepRun& run) const {
    const std::span<const SampledRow> sampled = run.batch.sampled();
    for (size_t first = 0; first < sampled.size();) {
      const size_t rows = RowsOfBlock(sampled.subspan(first));
      ExecuteBlock(run, first, rows);
      first += rows;
    }
  }

 private:
  // Returns the number of rows, from the first on, of the next block; blocks keep memory
  // independent of the number of sampled rows.
  size_t RowsOfBlock(std::span<const SampledRow> sampled) const {
    const size_t most = std::min<size_t>(sampled.size(), kHeadRows);
    int64_t full = 0;
    for (size_t i = 0; i < most; ++i) {
      if (NeedsLogits(sampled[i], head_.n()) && ++full > kLogitRows) return i;
    }
    return most;
  }

  void ExecuteBlock(const StepRun& run, size_t first, size_t rows) const {
    const int64_t hidden = head_.k();
    const float* in = run.buffer(in_);
    float* const gathered = run.at(run.layout.head_rows);  // [rows, hidden]
    float* logits = run.at(run.layout.head_logits);        // of the next row that needs logits
    std::array<kernels::HeadRow, kHeadRows> wanted;
    std::array<kernels::HeadResult, kHeadRows> results;
    for (size_t i = 0; i < rows; ++i) {
      const SampledRow& sampled = run.batch.sampled()[first + i];
      std::copy_n(in + run.batch.sampled_rows()[first + i] * hidden, hidden, gathered + i * hidden);
      wanted[i] = {.excluded = sampled.excluded};
      if (!NeedsLogits(sampled, head_.n())) {
        wanted[i].target = sampled.target;
        wanted[i].best = BestOf(sampled, head_.n());
      } else if (sampled.logits != nullptr) {
        wanted[i].logits = sampled.logits;
      } else {
        wanted[i].logits = logits;
        logits += head_.n();
      }
    }
    kernels::QuantizedRows quantized;
    if (head_.quantized()) {
      quantized = {run.context.profile, kernels::kHeadRows, hidden, false,
                   reinterpret_cast<std::byte*>(run.at(run.layout.head_quantized))};
      kernels::QuantizeRows(run.context, gathered, hidden, rows, quantized);
    }
    kernels::Head(run.context, head_,
                  {.x = gathered,
                   .bias = finish_.bias.empty() ? nullptr : finish_.bias.data(),
                   .soft_cap = finish_.soft_cap,
                   .quantized = quantized},
                  std::span(wanted.data(), rows),
                  reinterpret_cast<std::byte*>(run.at(run.layout.head_scratch)), results.data());
    const auto answer = [&](int64_t begin, int64_t end, int worker) {
      auto* scratch = reinterpret_cast<uint64_t*>(
          run.at(run.layout.sample_scratch + worker * run.layout.sample_stride));
      for (int64_t i = begin; i < end; ++i) {
        const SampledRow& sampled = run.batch.sampled()[first + i];
        if (wanted[i].logits != nullptr) {
          Answer(run.context.profile, sampled, {wanted[i].logits, static_cast<size_t>(head_.n())},
                 scratch);
        } else {
          Answer(run.context.profile, sampled, results[i]);
        }
        if (sampled.result->token >= 0) Diversify(sampled, *finish_.items);
      }
    };
    run.context.pool->ParallelFor(rows, 1, rows * head_.n(), answer);
    RaisePeaks(run, first, std::span(wanted.data(), rows));
  }

  // Columns are divided among threads, because rows may share their peaks.
  void RaisePeaks(const StepRun& run, size_t first, std::span<const kernels::HeadRow> rows) const {
    constexpr int64_t kColumns = 4096;
    const std::span<const SampledRow> sampled = run.batch.sampled().subspan(first, rows.size());
    const auto has = [](const SampledRow& row) { return row.peaks != nullptr; };
    if (std::none_of(sampled.begin(), sampled.end(), has)) return;
    const auto raise = [&](int64_t begin, int64_t end, int /*worker*/) {
      const int64_t column = begin * kColumns, past = std::min(end * kColumns, head_.n());
      for (size_t i = 0; i < rows.size(); ++i) {
        if (has(sampled[i])) RaiseTo(rows[i].logits, column, past, sampled[i].peaks);
      }
    };
    run.context.pool->ParallelFor(CeilDiv(head_.n(), kColumns), 1, raise);
  }

  // Answers a row from the result of the head.
  void Answer(kernels::Profile profile, const SampledRow& sampled,
              const kernels::HeadResult& found) const {
    if (!std::isfinite(found.log_sum)) {
      *sampled.result = kNoToken;
      return;
    }
    const auto logprob = [&](float logit) { return static_cast<float>(logit - found.log_sum); };
    for (int32_t i = 0; i < sampled.num_pool(); ++i) {
      sampled.top_ids[i] = found.best_ids[i];
      sampled.top_logprobs[i] = logprob(found.best_logits[i]);
      if (sampled.top_scores != nullptr) sampled.top_scores[i] = found.best_logits[i];
    }
    if (sampled.target >= 0) {
      *sampled.result = {sampled.target, logprob(found.target_logit)};
      return;
    }
    float weights[kernels::kMaxBest];
    const int64_t k = kernels::CandidatesToDraw(sampled.params, head_.n());
    const int64_t drawn = kernels::SampleCandidates(profile, sampled.params, found.best_logits, k,
                                                    head_.n(), weights);
    *sampled.result = {found.best_ids[drawn], logprob(found.best_logits[drawn])};
  }

  // Answers a row from all of its logits.
  static void Answer(kernels::Profile profile, const SampledRow& sampled, std::span<float> logits,
                     uint64_t* scratch) {
    const kernels::SampleRow row{.logits = logits.data(),
                                 .n = std::ssize(logits),
                                 .num_top = sampled.num_pool(),
                                 .top_ids = sampled.top_ids,
                                 .top_logprobs = sampled.top_logprobs,
                                 .edits = sampled.target < 0 ? sampled.edits : nullptr};
    if (sampled.target < 0) {
      *sampled.result = kernels::Sample(profile, sampled.params, row, scratch);
      if (sampled.result->token < 0) return;  // there are no candidates then
      for (int32_t k = 0; sampled.top_scores != nullptr && k < sampled.num_pool(); ++k) {
        sampled.top_scores[k] = logits[sampled.top_ids[k]];
      }
      return;
    }
    // The draw is greedy and made for the candidates only.
    if (sampled.num_top > 0) kernels::Sample(profile, kernels::SampleParams{}, row, scratch);
    const double log_sum = kernels::LogSumExp(profile, logits.data(), row.n);
    *sampled.result = kNoToken;
    if (std::isfinite(log_sum)) {
      const float logit = logits[sampled.target];
      *sampled.result = {sampled.target, static_cast<float>(logit - log_sum)};
    }
  }

  BufferId in_;
  kernels::PackedWeights head_;
  HeadFinish finish_;
};

// Returns the larger value; NaN if `value` is not finite or `most` is NaN.
double LargerFinite(double most, float value) {
  if (!std::isfinite(value)) return std::numeric_limits<double>::quiet_NaN();
  return value > most ? value : most;
}

class CpuState {
 public:
  CpuState(BufferId in, BufferId trunk, int64_t width) : in_(in), trunk_(trunk), width_(width) {}

  void operator()(const StepRun& run) const {
    const int64_t parts = CeilDiv(width_, kColumns);
    const auto sum = [&](int64_t begin, int64_t end, int /*worker*/) {
      for (int64_t i = begin; i < end; ++i) Sum(run, i / parts, i % parts * kColumns);
    };
    const int64_t values = std::ssize(run.batch.sequence_rows()) * width_;
    run.context.pool->ParallelFor(std::ssize(run.batch.states()) * parts, 1, values, sum);
  }

 private:
  static constexpr int64_t kColumns = 256;  // of a piece of work

  // Computes the columns from `first` on of sum `i`.
  void Sum(const StepRun& run, int64_t i, int64_t first) const {
    const auto [begin, count] = run.batch.state_places()[i];
    const int64_t columns = std::min(kColumns, width_ - first);
    const StateSum& sum = run.batch.states()[i];
    double* const out = sum.out + first;
    const bool largest = sum.largest;
    const float* const states = run.buffer(sum.of_trunk ? trunk_ : in_);
    std::fill_n(out, columns, largest ? -std::numeric_limits<double>::infinity() : 0.0);
    for (const int32_t row : run.batch.sequence_rows().subspan(begin, count)) {
      const float* const state = states + row * width_ + first;
      if (largest) {
        for (int64_t j = 0; j < columns; ++j) out[j] = LargerFinite(out[j], state[j]);
      } else {
        for (int64_t j = 0; j < columns; ++j) out[j] += state[j];
      }
    }
  }

  BufferId in_, trunk_;
  int64_t width_;
};

}  // namespace

CpuOp MakeCpuHead(BufferId in, kernels::PackedWeights head, HeadFinish finish) {
  return CpuHead(in, std::move(head), std::move(finish));
}

CpuOp MakeCpuState(BufferId in, BufferId trunk, int64_t width) {
  return CpuState(in, trunk, width);
}

}  // namespace sluice
