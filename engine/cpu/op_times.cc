#include "engine/cpu/op_times.h"

#include <algorithm>
#include <cstdint>
#include <memory>
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
#include "engine/cpu/equal_sequences.h"
#include "kernels/cpu/kv_cache.h"

namespace sluice {
namespace {

using kernels::kPageTokens;

constexpr double kMeasuredSeconds = 1;
constexpr size_t kMostSteps = 100;
constexpr size_t kTurns = 8;
constexpr double kLongStep = 0.1;  // seconds; far longer than the filling of the caches

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

absl::Status CheckDuration(const Model& model, const StepSizes& step) {
  const std::vector<GraphBuffer>& buffers = model.graph.buffers;
  const ModelConfig& config = model.config;
  double of_row = 0, of_sequence = 0;
  for (const GraphOp& op : model.graph.ops) {
    if (const auto* linear = std::get_if<LinearOp>(&op)) {
      const GraphBuffer& out = buffers[linear->out];
      of_row += static_cast<double>(buffers[linear->in].width * out.width * out.rows);
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
                                            const StepSizes& step,
                                            const std::function<void()>& between) {
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
  std::vector<double> of_step(times.size());
  double measured = 0, since_turn = 0;  // seconds of steps
  size_t steps_of_turn = kMostSteps;
  while (times.front().size() < kMostSteps &&
         (measured <= kMeasuredSeconds || times.front().empty())) {
    const bool turn =
        between && (since_turn > kMeasuredSeconds / kTurns || steps_of_turn >= kMostSteps / kTurns);
    if (turn) {
      between();
      since_turn = 0;
      steps_of_turn = 0;
    }
    const MonoTime begin = clock.Now();
    MonoTime last = begin;
    SLUICE_RETURN_IF_ERROR(
        executable.Trace(*plan, *slot, sequences.batch(), [&](size_t op, const StepRun&) {
          const MonoTime now = clock.Now();
          of_step[op] = Seconds(now - last);
          last = now;
        }));
    const double seconds = Seconds(last - begin);
    measured += seconds;
    since_turn += seconds;
    if (turn && seconds < kLongStep) continue;
    ++steps_of_turn;
    for (size_t i = 0; i < times.size(); ++i) times[i].push_back(of_step[i]);
  }
  if (between) between();
  std::vector<double> medians;
  medians.reserve(times.size());
  for (const std::vector<double>& each : times) medians.push_back(MedianOf(each));
  return medians;
}

}  // namespace sluice
