#include "engine/cpu/head_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/sample.h"

namespace sluice {
namespace {

class HeadStep final : public Step {
 public:
  HeadStep(BufferId in, kernels::PackedWeights head, HeadFinish finish)
      : in_(in), head_(std::move(head)), finish_(std::move(finish)) {}

  // In blocks, so that the logits' memory does not grow with the number of sampled rows.
  void Execute(const StepRun& run) const override {
    const auto total = static_cast<int64_t>(run.batch.sampled().size());
    for (int64_t first = 0; first < total; first += kHeadRows) {
      ExecuteBlock(run, first, std::min(kHeadRows, total - first));
    }
  }

 private:
  void ExecuteBlock(const StepRun& run, int64_t first, int64_t rows) const {
    const int64_t hidden = head_.k();
    const int64_t vocab = head_.n();
    const float* in = run.buffer(in_);
    float* gathered = run.at(run.layout.head_rows);  // [rows, hidden]
    float* logits = run.at(run.layout.head_logits);  // [rows, vocab]
    for (int64_t i = 0; i < rows; ++i) {
      std::copy_n(in + run.batch.sampled_rows()[first + i] * hidden, hidden, gathered + i * hidden);
    }
    kernels::Gemm(run.context, head_, rows,
                  {.x = gathered,
                   .ldx = hidden,
                   .bias = finish_.bias.empty() ? nullptr : finish_.bias.data(),
                   .bias_stride = 0,
                   .out = logits,
                   .ldo = vocab,
                   .accumulate = false});
    run.context.pool->ParallelFor(rows, 1, [&](int64_t begin, int64_t end, int worker) {
      auto* scratch = reinterpret_cast<uint64_t*>(
          run.at(run.layout.sample_scratch + worker * run.layout.sample_stride));
      for (int64_t i = begin; i < end; ++i) {
        const std::span<float> row(logits + i * vocab, static_cast<size_t>(vocab));
        const SampledRow& sampled = run.batch.sampled()[first + i];
        Finish(run.context.profile, sampled, row);
        Answer(run.context.profile, sampled, row, scratch);
      }
    });
  }

  void Finish(kernels::Profile profile, const SampledRow& sampled, std::span<float> logits) const {
    if (finish_.soft_cap != 0) {
      kernels::SoftCap(profile, finish_.soft_cap, static_cast<int64_t>(logits.size()),
                       logits.data());
    }
    for (const int32_t token : sampled.excluded) {
      logits[static_cast<size_t>(token)] = -std::numeric_limits<float>::infinity();
    }
  }

  static void Answer(kernels::Profile profile, const SampledRow& sampled, std::span<float> logits,
                     uint64_t* scratch) {
    if (sampled.logits != nullptr) std::copy(logits.begin(), logits.end(), sampled.logits);
    const kernels::SampleRow row{.logits = logits.data(),
                                 .n = static_cast<int64_t>(logits.size()),
                                 .num_top = sampled.num_top,
                                 .top_ids = sampled.top_ids,
                                 .top_logprobs = sampled.top_logprobs,
                                 .edits = sampled.target < 0 ? sampled.edits : nullptr};
    if (sampled.target < 0) {
      *sampled.result = kernels::Sample(profile, sampled.params, row, scratch);
      if (sampled.result->token < 0) return;  // without candidates
      for (int32_t k = 0; sampled.top_scores != nullptr && k < sampled.num_top; ++k) {
        sampled.top_scores[k] = logits[static_cast<size_t>(sampled.top_ids[k])];
      }
      return;
    }
    // The greedy draw is for the candidates only.
    if (sampled.num_top > 0) kernels::Sample(profile, kernels::SampleParams{}, row, scratch);
    const double log_sum = kernels::LogSumExp(profile, logits.data(), row.n);
    if (std::isfinite(log_sum)) {
      *sampled.result = {sampled.target, static_cast<float>(logits[sampled.target] - log_sum)};
    } else {
      *sampled.result = {-1, std::numeric_limits<float>::quiet_NaN()};
    }
  }

  BufferId in_;
  kernels::PackedWeights head_;
  HeadFinish finish_;
};

class StateStep final : public Step {
 public:
  StateStep(BufferId in, int64_t width) : in_(in), width_(width) {}

  void Execute(const StepRun& run) const override {
    const std::span<const StateRow> states = run.batch.states();
    for (size_t i = 0; i < states.size(); ++i) {
      std::copy_n(run.buffer(in_) + run.batch.state_rows()[i] * width_, width_, states[i].out);
    }
  }

 private:
  BufferId in_;
  int64_t width_;
};

}  // namespace

std::unique_ptr<const Step> MakeHeadStep(BufferId in, kernels::PackedWeights head,
                                         HeadFinish finish) {
  return std::make_unique<HeadStep>(in, std::move(head), std::move(finish));
}

std::unique_ptr<const Step> MakeStateStep(BufferId in, int64_t width) {
  return std::make_unique<StateStep>(in, width);
}

}  // namespace sluice
