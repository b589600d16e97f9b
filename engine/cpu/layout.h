// The places in a slot's arena of everything that a replay writes.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/backend.h"
#include "engine/model/model.h"
#include "kernels/cpu/attention_schedule.h"
#include "kernels/cpu/context.h"

namespace sluice {

// The most sampled rows whose logits are in memory at the same time.
inline constexpr int64_t kLogitRows = 32;

// Offsets in floats, each at the beginning of a cache line.
struct ArenaLayout {
  std::vector<int64_t> buffers;  // per graph buffer: [bucket.tokens * its rows, width]
  int64_t quantized;             // QuantizedRowBytes(bucket.tokens)
  int64_t routes;                // kernels::Routes of bucket.tokens rows
  int64_t adapted;               // [bucket.tokens, kMaxAdapterRank] if the graph takes adapters
  int64_t attention_scratch;     // AttentionScratchFloats
  int64_t head_rows;             // [kernels::kHeadRows, hidden]
  int64_t head_quantized;        // QuantizedRows of them
  int64_t head_logits;           // [kLogitRows, vocab]
  int64_t head_scratch;          // HeadScratch(vocab, threads)
  int64_t sample_scratch;        // [threads, sample_stride]
  int64_t sample_stride;
  int64_t floats;  // of the whole arena; grows with the bucket
};

ArenaLayout LayOutArena(const Model& model, const Bucket& bucket, const kernels::Context& context,
                        const kernels::AttentionChoice& attention);

}  // namespace sluice
