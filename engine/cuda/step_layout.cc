#include "engine/cuda/step_layout.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <variant>

#include "base/check.h"
#include "engine/cuda/cuda_adapter.h"
#include "engine/cuda/dense_layer.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/route.h"
#include "kernels/cuda/row_tiles.h"

namespace sluice {
namespace {

using kernels::RowGroup;
using kernels::cuda::AttentionSequence;
using kernels::cuda::AttentionTile;
using kernels::cuda::PlacedMatrix;

constexpr int64_t kAlignment = 256;

// The kernels read the arrays of a StepBatch as they are.
static_assert(sizeof(StepBatch::Sequence) == sizeof(AttentionSequence));
static_assert(offsetof(StepBatch::Sequence, count) == offsetof(AttentionSequence, count));
static_assert(offsetof(StepBatch::Sequence, rows_offset) ==
              offsetof(AttentionSequence, rows_offset));
static_assert(offsetof(StepBatch::Sequence, pages_offset) ==
              offsetof(AttentionSequence, pages_offset));

template <typename T>
void Copy(std::span<const T> values, char* to) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (!values.empty()) std::memcpy(to, values.data(), values.size_bytes());
}

// The adapters of a step on this device.
const CudaAdapter& AdapterOf(const LoadedAdapter* adapter) {
  return *static_cast<const CudaAdapter*>(adapter);
}

}  // namespace

StepLayout LayOutStep(const ModelConfig& config, const Graph& graph, const Bucket& bucket,
                      int64_t rows, const StepTraits& traits) {
  const int64_t element_bytes = traits.element_bytes;
  int64_t end = 0;
  const auto take = [&end](int64_t count, int64_t bytes) {
    const int64_t offset = end;
    end += (count * bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  };
  constexpr int64_t kInt = sizeof(int32_t);
  const int64_t tokens = bucket.tokens;
  const int32_t sequences = StepCapacity(bucket, config.causal).sequences;
  StepLayout layout;
  layout.buffers.resize(graph.buffers.size());
  std::vector<int64_t> value_bytes(graph.buffers.size(), element_bytes);
  for (const GraphOp& op : graph.ops) {
    if (const auto* route = std::get_if<RouteOp>(&op)) value_bytes[route->logits] = sizeof(float);
  }
  // The input of the head is at the same place in every layout, so that one captured head serves
  // all buckets.
  layout.buffers[graph.head_input] =
      take(rows * graph.buffers[graph.head_input].width, element_bytes);
  for (size_t i = 0; i < layout.buffers.size(); ++i) {
    const GraphBuffer& buffer = graph.buffers[i];
    if (static_cast<BufferId>(i) == graph.head_input || buffer.within != kNoBuffer) continue;
    layout.buffers[i] = take(rows * buffer.rows * buffer.width, value_bytes[i]);
  }
  for (size_t i = 0; i < layout.buffers.size(); ++i) {
    const GraphBuffer& buffer = graph.buffers[i];
    if (buffer.within == kNoBuffer) continue;
    layout.buffers[i] = layout.buffers[buffer.within] + buffer.first * element_bytes;
  }
  layout.input = layout.counts = take(1, sizeof(StepCounts));
  layout.token_ids = take(tokens, kInt);
  layout.types = take(config.token_types > 0 ? tokens : 0, kInt);
  layout.positions = take(tokens, kInt);
  layout.kv_slots = take(tokens, kInt);
  layout.sequence_rows = take(tokens, kInt);
  layout.sequences = take(sequences, sizeof(AttentionSequence));
  layout.page_copies = take(sequences, sizeof(kernels::PageCopy));
  layout.max_dense_tiles = kernels::cuda::MaxRowTiles(tokens, 1);
  layout.max_group_tiles = kernels::cuda::MaxRowTiles(tokens, tokens);
  const bool adapts = traits.adapted_width > 0;
  const int64_t adapter_groups = config.position_wise.Any() ? tokens : sequences;
  layout.max_adapter_tiles =
      adapts ? static_cast<int32_t>(kernels::cuda::MaxRowTiles(tokens, adapter_groups)) : 0;
  layout.attention = {.q_heads = static_cast<int32_t>(config.heads),
                      .kv_heads = static_cast<int32_t>(config.kv_heads),
                      .causal = config.causal,
                      .max_context = config.max_positions,
                      .processors = traits.processors,
                      .rows = tokens,
                      .sequences = sequences};
  layout.max_attention_tiles = kernels::cuda::MaxAttentionTiles(layout.attention);
  layout.dense_tiles = take(layout.max_dense_tiles, sizeof(RowGroup));
  layout.group_tiles = take(layout.max_group_tiles, sizeof(RowGroup));
  layout.attention_tiles = take(layout.max_attention_tiles, sizeof(AttentionTile));
  layout.adapter_tiles = take(layout.max_adapter_tiles, sizeof(RowGroup));
  layout.adapter_tables = take(adapts ? sequences : 0, sizeof(const PlacedMatrix*));
  layout.inputs = take(tokens * config.input_width, sizeof(float));
  constexpr int64_t kPageTokens = kernels::cuda::kPageTokens;
  const int64_t sequence_pages = (config.max_positions + kPageTokens - 1) / kPageTokens;
  layout.pages = take(sequences * sequence_pages, kInt);
  layout.input_bytes = end - layout.input;

  const int64_t diagnostics = config.xsa.Any() ? config.layers * tokens * config.heads : 0;
  layout.cos_sim = take(diagnostics, sizeof(float));
  layout.proj_frac = take(diagnostics, sizeof(float));
  layout.attention_scratch = take(kernels::cuda::AttentionScratchFloats(
                                      layout.attention, static_cast<int32_t>(config.head_dim)),
                                  sizeof(float));
  layout.experts = static_cast<int32_t>(config.experts.count);
  layout.chosen = static_cast<int32_t>(config.experts.chosen);
  layout.routes = take(
      layout.experts > 0 ? kernels::cuda::Routes::Bytes(tokens, layout.experts, layout.chosen) : 0,
      1);
  const int64_t quantized_rows = traits.int8_width > 0 ? Int8DenseRows(tokens) : tokens;
  layout.quantized = take(quantized_rows * traits.quantized_width, sizeof(int8_t));
  const int64_t scales = tokens * std::max(layout.chosen, 1);
  layout.row_scales = take(traits.quantized_width > 0 ? scales : 0, sizeof(float));
  layout.int8_sums = take(Int8Sums(tokens, traits.int8_width), sizeof(int32_t));
  layout.adapted = take(tokens * traits.adapted_width, element_bytes);
  layout.workspace = take(traits.workspace_bytes, 1);
  layout.bytes = end;
  return layout;
}

void WriteInput(const StepBatch& batch, const StepLayout& layout, char* input) {
  const auto at = [&](int64_t offset) { return input + (offset - layout.input); };
  const auto tiles_at = [&](int64_t offset) { return reinterpret_cast<RowGroup*>(at(offset)); };
  const RowGroup all_rows = {0, 0, batch.tokens()};
  auto* const tables = reinterpret_cast<const PlacedMatrix**>(at(layout.adapter_tables));
  int32_t adapter_rank = 1;
  for (size_t i = 0; i < batch.adapters().size(); ++i) {
    const CudaAdapter& adapter = AdapterOf(batch.adapters()[i]);
    tables[i] = adapter.table();
    adapter_rank = std::max(adapter_rank, adapter.max_rank());
  }
  const StepCounts counts = {
      .rows = batch.tokens(),
      .dense_tiles = kernels::cuda::CutIntoRowTiles({&all_rows, 1}, tiles_at(layout.dense_tiles)),
      .group_tiles = kernels::cuda::CutIntoRowTiles(batch.groups(), tiles_at(layout.group_tiles)),
      .adapter_tiles =
          kernels::cuda::CutIntoRowTiles(batch.adapter_groups(), tiles_at(layout.adapter_tiles)),
      .adapter_rank = adapter_rank,
      .wants_diagnostics = batch.xsa_cos_sim != nullptr || batch.xsa_proj_frac != nullptr,
      .page_copies = static_cast<int32_t>(batch.page_copies().size()),
      .attention_tiles = kernels::cuda::CutIntoAttentionTiles(
          batch.sequences(), layout.attention,
          {reinterpret_cast<AttentionTile*>(at(layout.attention_tiles)),
           static_cast<size_t>(layout.max_attention_tiles)},
          batch.hidden()),
      .attention_taken = 0};
  std::memcpy(at(layout.counts), &counts, sizeof(counts));
  Copy(batch.token_ids(), at(layout.token_ids));
  if (batch.types().empty()) {
    std::memset(at(layout.types), 0, layout.positions - layout.types);
  } else {
    Copy(batch.types(), at(layout.types));
  }
  Copy(batch.positions(), at(layout.positions));
  Copy(batch.kv_slots(), at(layout.kv_slots));
  Copy(batch.sequence_rows(), at(layout.sequence_rows));
  Copy(batch.sequences(), at(layout.sequences));
  Copy(batch.page_copies(), at(layout.page_copies));
  Copy(batch.inputs(), at(layout.inputs));
  Copy(batch.pages(), at(layout.pages));
}

}  // namespace sluice
