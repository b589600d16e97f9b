#include "kernels/cpu/attention.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
namespace {

int64_t ScoreStride(int64_t max_context) { return CeilDiv(max_context, kPageTokens) * kPageTokens; }

// Returns the number of floats that the scores and running sums of a tile need.
int64_t TileFloats(int64_t max_context, int32_t head_dim) {
  return simd::kAttentionTile * (ScoreStride(max_context) + head_dim);
}

// Returns a block with all fields set except those that depend on the sequence and the KV head.
simd::AttentionBlock Template(const AttentionArgs& args, const KvLayer& kv, int64_t max_context) {
  return {.q = args.q,
          .out = args.out,
          .row_stride = int64_t{args.q_heads} * kv.head_dim,
          .heads = args.q_heads / kv.kv_heads,
          .rows = nullptr,
          .count = 0,
          .first_position = 0,
          .context = 0,
          .scale = args.scale,
          .kv = &kv,
          .kv_head = 0,
          .pages = nullptr,
          .xsa = args.xsa,
          .xsa_eps = args.xsa_eps,
          .xsa_gate = args.xsa_gate,
          .cos_sim = args.cos_sim,
          .proj_frac = args.proj_frac,
          .diagnostics_stride = args.q_heads,
          .scratch = nullptr,
          .queries = nullptr,
          .score_stride = ScoreStride(max_context)};
}

// Runs block `index` of `sequence`. Blocks are numbered by rows, then KV heads, so that the heads
// of the same rows are neighbours.
void RunBlock(const simd::Table& table, simd::AttentionBlock block,
              const AttentionSequence& sequence, bool causal, int64_t index) {
  const int32_t first = static_cast<int32_t>(index / block.kv->kv_heads) * simd::kAttentionRows;
  block.kv_head = static_cast<int32_t>(index % block.kv->kv_heads);
  block.rows = sequence.rows + first;
  block.count = std::min(simd::kAttentionRows, sequence.count - first);
  block.first_position = sequence.first_position + first;
  block.context = causal ? 0 : sequence.first_position + sequence.count;
  block.pages = sequence.pages;
  const int64_t head = int64_t{block.kv_head} * block.heads;
  block.q += head * block.kv->head_dim;
  block.out += head * block.kv->head_dim;
  if (block.xsa_gate != nullptr) block.xsa_gate += head;
  if (block.cos_sim != nullptr) block.cos_sim += head;
  if (block.proj_frac != nullptr) block.proj_frac += head;
  table.attention(block);
}

}  // namespace

int64_t AttentionScratchFloats(int64_t max_context, int32_t head_dim) {
  constexpr int64_t kCacheLine = 16;  // floats; keeps workers off each other's cache lines
  return CeilDiv(TileFloats(max_context, head_dim), kCacheLine) * kCacheLine +
         CeilDiv(head_dim, simd::kQueryRun) * simd::kAttentionTile * simd::kQueryRun;
}

void Attention(const Context& context, const AttentionArgs& args, const KvLayer& kv,
               std::span<const AttentionSequence> sequences, int64_t max_context, float* scratch) {
  constexpr int64_t kRangesPerThread = 16;
  SLUICE_CHECK(args.q_heads % kv.kv_heads == 0);
  const simd::Table& table = simd::TableFor(context.profile);
  const auto blocks = [&](const AttentionSequence& sequence) {
    return CeilDiv(sequence.count, simd::kAttentionRows) * kv.kv_heads;
  };
  int64_t total = 0;
  for (const AttentionSequence& sequence : sequences) {
    SLUICE_CHECK(sequence.first_position + sequence.count <= max_context);
    total += blocks(sequence);
  }

  const int64_t scratch_floats = AttentionScratchFloats(max_context, kv.head_dim);
  const auto run_range = [&](int64_t begin, int64_t end, int worker) {
    simd::AttentionBlock block = Template(args, kv, max_context);
    block.scratch = scratch + worker * scratch_floats;
    block.queries = block.scratch + TileFloats(max_context, kv.head_dim);
    int64_t first = 0;  // index of the sequence's first block among all blocks
    for (const AttentionSequence& sequence : sequences) {
      const int64_t past = first + blocks(sequence);
      for (int64_t i = std::max(begin, first); i < std::min(end, past); ++i) {
        RunBlock(table, block, sequence, args.causal, i - first);
      }
      first = past;
      if (first >= end) return;
    }
  };
  const int64_t grain = std::max<int64_t>(1, total / (context.pool->threads() * kRangesPerThread));
  context.pool->ParallelFor(total, grain, run_range);
}

}  // namespace sluice::kernels
