#include "engine/cpu/op_times.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/ceil_div.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "engine/cpu/cpu_slot.h"
#include "kernels/cpu/kv_cache.h"

namespace sluice {
namespace {

using kernels::kPageTokens;

constexpr double kMeasuredSeconds = 1;
constexpr size_t kMostSteps = 100;

// Fills the pages, since memory that was never written may share one page of zeros, which stays in
// the cache.
void FillPages(const ModelConfig& config, const CpuSlot& slot) {
  uint32_t state = 1;
  std::vector<float> values(static_cast<size_t>(config.head_dim));
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    const kernels::KvLayer kv = slot.kv_layer(layer);
    for (int64_t token = 0; token < int64_t{slot.pages()} * kPageTokens; ++token) {
      for (int32_t head = 0; head < kv.kv_heads; ++head) {
        for (float& value : values) {
          state = state * 1664525u + 1013904223u;
          value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
        }
        kernels::StoreKey(kv, token, head, values.data());
        kernels::StoreValue(kv, token, head, values.data());
      }
    }
  }
}

// The batch of a step of equal sequences.
class EqualSequences {
 public:
  EqualSequences(const ModelConfig& config, const StepSizes& step, int64_t pages_each,
                 RowOrder order)
      : pages_(static_cast<size_t>(step.sequences * pages_each)),
        tokens_(static_cast<size_t>(step.tokens)),
        inputs_(static_cast<size_t>(step.tokens * config.input_width), 0.5f),
        results_(config.has_lm_head ? static_cast<size_t>(step.sequences) : 0),
        batch_(static_cast<int32_t>(step.sequences * step.tokens),
               static_cast<int32_t>(step.sequences), static_cast<int32_t>(step.context),
               kPageTokens, static_cast<int32_t>(config.input_width)) {
    std::iota(pages_.begin(), pages_.end(), 0);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] = static_cast<int32_t>(static_cast<int64_t>(i) % config.vocab_size);
    }
    const auto tokens = static_cast<int32_t>(step.tokens);
    const auto context = static_cast<int32_t>(step.context);
    std::vector<StepSequence> sequences;
    std::vector<SampledRow> sampled;
    for (int32_t i = 0; i < step.sequences; ++i) {
      sequences.push_back({.first_position = context - tokens,
                           .count = tokens,
                           .tokens = tokens_.data(),
                           .pages = &pages_[i * pages_each],
                           .input_count = config.embeds_ids() ? 0 : tokens,
                           .inputs = inputs_.data()});
      if (results_.empty()) continue;
      sampled.push_back({.sequence = i, .position = context - 1, .result = &results_[i]});
    }
    batch_.Assign(sequences, sampled, order);
  }

  const StepBatch& batch() const { return batch_; }

 private:
  std::vector<int32_t> pages_, tokens_;
  std::vector<float> inputs_;  // [tokens, input_width]
  std::vector<kernels::SampleResult> results_;
  StepBatch batch_;
};

absl::Status CheckDuration(const Model& model, const StepSizes& step) {
  const std::vector<GraphBuffer>& buffers = model.graph.buffers;
  const ModelConfig& config = model.config;
  double of_row = 0, of_sequence = 0;
  for (const GraphOp& op : model.graph.ops) {
    if (const auto* linear = std::get_if<LinearOp>(&op)) {
      of_row += static_cast<double>(buffers[linear->in].width * buffers[linear->out].width);
    } else if (const auto* head = std::get_if<HeadOp>(&op)) {
      of_sequence += static_cast<double>(buffers[head->in].width * config.vocab_size);
    } else if (std::holds_alternative<AttentionOp>(op)) {
      of_row += 2.0 * static_cast<double>(step.context * config.heads * config.head_dim);
    }
  }
  const double all = static_cast<double>(step.sequences) *
                     (of_sequence + static_cast<double>(step.tokens) * of_row);
  if (all <= kMaxMultiplyAdds) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("the step has %.3g multiply-adds; a profile has at most %.3g. Lower "
                      "sequences, tokens or context.",
                      all, kMaxMultiplyAdds));
}

absl::Status CheckMemory(int64_t bytes) {
  constexpr int64_t kUnknown = int64_t{1} << 30;
  const int64_t free = CgroupFreeMemory(ReadSystemFile).value_or(kUnknown);
  if (bytes <= free / 2) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("a profile of this step takes ", bytes,
                   " bytes for keys, values and "
                   "activations, more than half of the ",
                   free, " that are free. Lower sequences, tokens or context."));
}

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

absl::StatusOr<std::vector<double>> TimeOps(const CpuModel& executable, const Model& model,
                                            const StepSizes& step) {
  const int64_t rows = step.sequences * step.tokens;
  if (rows > kMaxProfiledRows) {
    return absl::InvalidArgumentError(absl::StrCat("sequences x tokens is ", rows,
                                                   "; a profile has at most ", kMaxProfiledRows,
                                                   ". Lower sequences or tokens."));
  }
  SLUICE_RETURN_IF_ERROR(CheckDuration(model, step));
  const Bucket bucket = {static_cast<int32_t>(rows), static_cast<int32_t>(step.sequences)};
  const int64_t pages_each = CeilDiv(step.context, kPageTokens);
  const int64_t pages = step.sequences * pages_each;
  SLUICE_RETURN_IF_ERROR(
      CheckMemory(pages * executable.page_bytes() + executable.activation_bytes(bucket)));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan, executable.Prepare(bucket));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Slot> slot,
                          executable.CreateSlot(bucket, static_cast<int32_t>(pages)));
  if (executable.page_bytes() > 0) FillPages(model.config, static_cast<const CpuSlot&>(*slot));
  const EqualSequences sequences(model.config, step, pages_each, executable.row_order());

  const Clock& clock = *Clock::Real();
  std::vector<std::vector<double>> times(model.graph.ops.size());
  const MonoTime begin = clock.Now();
  while (true) {
    MonoTime last = clock.Now();
    SLUICE_RETURN_IF_ERROR(
        executable.Trace(*plan, *slot, sequences.batch(), [&](size_t op, const StepRun&) {
          const MonoTime now = clock.Now();
          times[op].push_back(Seconds(now - last));
          last = now;
        }));
    if (times.front().size() >= kMostSteps || Seconds(clock.Now() - begin) > kMeasuredSeconds) {
      break;
    }
  }
  std::vector<double> medians;
  medians.reserve(times.size());
  for (const std::vector<double>& each : times) medians.push_back(MedianOf(each));
  return medians;
}

}  // namespace sluice
