#include "engine/cpu/layout.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/size_of.h"
#include "engine/cpu/float_buffer.h"
#include "engine/cpu/int8_layout.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/head.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/quantized_rows.h"
#include "kernels/cpu/route.h"
#include "kernels/cpu/sample.h"

namespace sluice {
namespace {

int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

ArenaLayout LayOutArena(const Model& model, const Bucket& bucket, const kernels::Context& context,
                        const kernels::AttentionChoice& attention) {
  const int threads = context.pool->threads();
  int64_t end = 0;
  const auto take = [&end](int64_t floats) {
    const int64_t offset = end;
    end += RoundUp(floats, kCacheLineFloats);
    return offset;
  };
  const ModelConfig& config = model.config;
  ArenaLayout layout;
  for (const GraphBuffer& buffer : model.graph.buffers) {
    layout.buffers.push_back(take(bucket.tokens * buffer.rows * buffer.width));
  }
  const auto take_bytes = [&](int64_t bytes) { return take(CeilDiv(bytes, kSizeOf<float>)); };
  layout.quantized = take_bytes(QuantizedRowBytes(model, context.profile, bucket.tokens));
  layout.routes = take_bytes(
      kernels::Routes::Bytes({bucket.tokens, config.experts.count, config.experts.chosen}));
  layout.adapted = take(model.graph.takes_adapters ? bucket.tokens * kMaxAdapterRank : 0);
  // Attention in both directions computes whole sequences.
  const int64_t longest =
      config.causal ? config.max_positions : std::min<int64_t>(config.max_positions, bucket.tokens);
  layout.attention_scratch = take(
      kernels::AttentionScratchFloats(attention, {.q_heads = static_cast<int32_t>(config.heads),
                                                  .kv_heads = static_cast<int32_t>(config.kv_heads),
                                                  .head_dim = static_cast<int32_t>(config.head_dim),
                                                  .max_context = longest,
                                                  .threads = threads,
                                                  .kv_type = config.kv_dtype,
                                                  .of_rows = !config.causal,
                                                  .relative_rows = 2 * config.disentangled.span}));
  layout.head_rows = take(kernels::kHeadRows * config.hidden_size);
  layout.head_quantized = take_bytes(
      AnyQuantized(model) ? kernels::QuantizedRows::Bytes(context.profile, kernels::kHeadRows,
                                                          config.hidden_size, /*sums=*/false)
                          : 0);
  layout.head_logits = take(kLogitRows * config.vocab_size);
  layout.head_scratch = take(kernels::HeadScratch(config.vocab_size, threads) / kSizeOf<float>);
  constexpr int64_t kFloatsPerWord = sizeof(uint64_t) / sizeof(float);
  layout.sample_stride =
      RoundUp(kernels::SampleScratch(config.vocab_size) * kFloatsPerWord, kCacheLineFloats);
  layout.sample_scratch = take(threads * layout.sample_stride);
  layout.floats = end;
  return layout;
}

}  // namespace sluice
