#include "verify/activations.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <variant>

#include "base/ceil_div.h"
#include "base/status_macros.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_model.h"
#include "kernels/cpu/kv_cache.h"

namespace sluice::verify {
namespace {

constexpr int64_t kMaxRows = 256;  // kept of each projection

// Updates the largest magnitudes with the rows that enter the projection in a step. Keeps each
// `stride`-th row of all steps.
void AddRows(const float* rows, int64_t count, int64_t first, int64_t stride,
             EnteringRows* entering) {
  const int64_t width = entering->width;
  for (int64_t r = 0; r < count; ++r) {
    const float* const row = rows + r * width;
    for (int64_t d = 0; d < width; ++d) {
      entering->largest[d] = std::max(entering->largest[d], std::abs(row[d]));
    }
    if ((first + r) % stride == 0) entering->rows.insert(entering->rows.end(), row, row + width);
  }
}

}  // namespace

absl::StatusOr<std::vector<EnteringRows>> CollectRows(std::shared_ptr<const Model> model,
                                                      std::span<const Text> texts) {
  SLUICE_ASSIGN_OR_RETURN(const auto backend, MakeCpuBackend({.profile = "f32"}));
  SLUICE_ASSIGN_OR_RETURN(const auto loaded, backend->Load(model));
  const auto& executable = static_cast<const CpuModel&>(*loaded);
  int64_t longest = 1, tokens = 0;
  for (const Text& text : texts) {
    longest = std::max(longest, std::ssize(text.tokens));
    tokens += std::ssize(text.tokens);
  }
  const int64_t stride = CeilDiv(tokens, kMaxRows);
  const Bucket bucket = {static_cast<int32_t>(longest), 1};
  SLUICE_ASSIGN_OR_RETURN(const auto plan, executable.Prepare(bucket));
  SLUICE_ASSIGN_OR_RETURN(const auto slot,
                          executable.CreateSlot(bucket, MaxPages(bucket, kernels::kPageTokens)));
  std::vector<int32_t> pages(static_cast<size_t>(slot->pages()));
  std::iota(pages.begin(), pages.end(), 0);
  const ModelConfig& config = model->config;
  std::vector<EnteringRows> entering(model->graph.ops.size());
  int64_t before = 0;  // rows of the texts before
  for (const Text& text : texts) {
    const auto length = static_cast<int32_t>(text.tokens.size());
    StepSequence step{0, length, text.tokens.data(), pages.data()};
    step.type_count = static_cast<int32_t>(std::ssize(text.types));
    step.types = text.types.data();
    if (config.serving.alignment == PositionAlignment::kEnd) {
      step.position_offset = static_cast<int32_t>(config.max_positions) - length;
    }
    StepBatch batch(length, 1, static_cast<int32_t>(config.max_positions), kernels::kPageTokens,
                    static_cast<int32_t>(config.input_width), config.padding_token);
    batch.Assign({&step, 1}, {}, executable.row_order());
    const auto observe = [&](size_t op, const StepRun& run) {
      const auto* const linear = std::get_if<LinearOp>(&model->graph.ops[op]);
      if (linear == nullptr) return;
      EnteringRows& rows = entering[op];
      rows.width = model->graph.buffers[linear->in].width;
      rows.largest.resize(static_cast<size_t>(rows.width));
      AddRows(run.buffer(linear->in), length * model->graph.buffers[linear->in].rows, before,
              stride, &rows);
    };
    SLUICE_RETURN_IF_ERROR(executable.Trace(*plan, *slot, batch, observe));
    before += length;
  }
  return entering;
}

}  // namespace sluice::verify
