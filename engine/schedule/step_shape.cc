#include "engine/schedule/step_shape.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sluice {
namespace {

int32_t DistinctPositions(std::span<WaitingSequence* const> batch) {
  // Static, so that it allocates only for a batch larger than all earlier ones.
  thread_local std::vector<std::pair<int32_t, int32_t>> ranges;
  ranges.clear();
  for (const WaitingSequence* sequence : batch) {
    const int32_t first = sequence->first_position + sequence->position_offset;
    ranges.emplace_back(first, first + sequence->tokens);
  }
  std::sort(ranges.begin(), ranges.end());
  int32_t distinct = 0;
  int32_t end = 0;
  for (const auto& [first, last] : ranges) {
    distinct += std::max(last - std::max(first, end), 0);
    end = std::max(end, last);
  }
  return distinct;
}

int32_t DistinctAdapters(std::span<WaitingSequence* const> batch) {
  thread_local std::vector<uint64_t> adapters;  // static for the same reason
  adapters.clear();
  for (const WaitingSequence* sequence : batch) {
    if (sequence->adapter != 0) adapters.push_back(sequence->adapter);
  }
  std::sort(adapters.begin(), adapters.end());
  return std::unique(adapters.begin(), adapters.end()) - adapters.begin();
}

}  // namespace

StepShape EstimatedShapeOf(std::span<WaitingSequence* const> batch, const Bucket& bucket) {
  StepShape shape{.bucket = bucket};
  int32_t longest_fresh = 0;
  int32_t others = 0;
  int32_t end = 0;
  for (const WaitingSequence* sequence : batch) {
    shape.computed_tokens += sequence->tokens;
    shape.context_tokens += sequence->reach.ContextOf(sequence->first_position, sequence->tokens);
    shape.sampled_rows += sequence->sampled_rows;
    end = std::max(end, sequence->first_position + sequence->tokens);
    if (sequence->first_position == 0) {
      longest_fresh = std::max(longest_fresh, sequence->tokens);
    } else {
      others += sequence->tokens;
    }
  }
  shape.distinct_positions = std::min(longest_fresh + others, end);
  shape.distinct_adapters = DistinctAdapters(batch);
  if (bucket.padded()) shape.computed_tokens = bucket.tokens;
  return shape;
}

StepShape ShapeOf(std::span<WaitingSequence* const> batch, const Bucket& bucket) {
  StepShape shape = EstimatedShapeOf(batch, bucket);
  const bool all_fresh = std::all_of(batch.begin(), batch.end(), [](const auto* sequence) {
    return sequence->first_position == 0;
  });
  if (!all_fresh) shape.distinct_positions = DistinctPositions(batch);
  return shape;
}

}  // namespace sluice
