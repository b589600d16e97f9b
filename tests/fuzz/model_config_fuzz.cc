// A model's config.json.
#include <cmath>

#include "engine/model/config.h"
#include "engine/model/graph.h"
#include "engine/model/rope.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

void CheckShape(const ModelConfig& config) {
  for (const int64_t size : {config.vocab_size, config.hidden_size, config.intermediate_size,
                             config.layers, config.heads, config.kv_heads, config.max_positions}) {
    SLUICE_CHECK(size >= 1 && size <= int64_t{1} << 24);
  }
  SLUICE_CHECK(config.heads % config.kv_heads == 0 && config.head_dim % 2 == 0);
  SLUICE_CHECK(config.head_dim >= 2 && config.heads * config.head_dim <= 65536);
  SLUICE_CHECK(config.norm.eps > 0 && config.xsa.eps > 0);
  SLUICE_CHECK(!config.byte_tokenizer || config.vocab_size >= 256);
}

void CheckTokens(const ModelConfig& config) {
  SLUICE_CHECK(config.bos_token_id >= -1 && config.bos_token_id < config.vocab_size);
  for (const int32_t id : config.eos_token_ids) SLUICE_CHECK(id >= 0 && id < config.vocab_size);
}

// What the backends allocate and index by: every op's buffers exist and have a width.
void CheckGraph(const ModelConfig& config) {
  const Graph graph = BuildGraph(config);
  for (const GraphBuffer& buffer : graph.buffers) {
    SLUICE_CHECK(buffer.width >= 1 && buffer.width <= 4 * 65536);
  }
  SLUICE_CHECK(graph.ops.size() <= 64 * static_cast<size_t>(config.layers) + 64);
  for (const double frequency : RopeFrequencies(config.rope, config.rotary_dim())) {
    SLUICE_CHECK(std::isfinite(frequency) && frequency >= 0 && frequency <= 1);
  }
}

}  // namespace
}  // namespace sluice

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = sluice::ParseModelConfig(sluice::fuzz::AsText(data, size));
  if (!config.ok()) {
    sluice::fuzz::CheckRefusal(config.status());
    return 0;
  }
  sluice::CheckShape(*config);
  sluice::CheckTokens(*config);
  sluice::CheckGraph(*config);
  return 0;
}
