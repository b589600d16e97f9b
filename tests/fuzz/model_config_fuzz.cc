// Parses a model's config.json and builds its graph.
#include <cmath>
#include <variant>

#include "engine/model/config.h"
#include "engine/model/graph.h"
#include "engine/model/relative_bias.h"
#include "engine/model/rope.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

void CheckShape(const ModelConfig& config) {
  for (const int64_t size : {config.vocab_size, config.hidden_size, config.intermediate_size,
                             config.layers, config.heads, config.kv_heads, config.max_positions}) {
    SLUICE_CHECK(size >= 1 && size <= int64_t{1} << 24);
  }
  SLUICE_CHECK(config.heads % config.kv_heads == 0 && config.rotary_dim() % 2 == 0);
  SLUICE_CHECK(config.head_dim >= 1 && config.rotary_dim() <= config.head_dim);
  SLUICE_CHECK(config.heads * config.head_dim <= 65536);
  SLUICE_CHECK(config.norm.eps > 0 && config.xsa.eps > 0);
  SLUICE_CHECK(!config.quantization.head || config.quantization.projections != Quantization::kNone);
  SLUICE_CHECK(!config.byte_tokenizer || config.vocab_size >= 256);
}

void CheckTokens(const ModelConfig& config) {
  SLUICE_CHECK(config.bos_token_id >= -1 && config.bos_token_id < config.vocab_size);
  for (const int32_t id : config.eos_token_ids) SLUICE_CHECK(id >= 0 && id < config.vocab_size);
}

// Checks that the part of a tensor that an op reads lies within the tensor's required shape.
struct PartsFit {
  const Graph& graph;

  int64_t Width(BufferId id) const { return graph.buffers.at(id).width; }
  static void Check(const TensorPart& part, int64_t least) {
    if (!part.present()) return;
    int64_t elements = 1;
    for (const int64_t size : part.shape) {
      SLUICE_CHECK(size >= 1 && elements <= (int64_t{1} << 62) / size);
      elements *= size;
    }
    if (part.run > 0) {
      SLUICE_CHECK(least % part.run == 0 && (part.stride == 0 || part.run <= part.stride));
      const int64_t runs = least / part.run;
      SLUICE_CHECK(part.evens_first == 0 ||
                   (part.evens_first % 2 == 0 && runs % part.evens_first == 0));
      least = (runs - 1) * part.stride + part.run;
    }
    SLUICE_CHECK(part.first >= 0 && least <= elements - part.first);
  }

  void operator()(const EmbedOp& op) const { Check(op.table, Width(op.out)); }
  void operator()(const InputOp& op) const { SLUICE_CHECK(op.width == Width(op.out)); }
  void operator()(const NormOp& op) const {
    SLUICE_CHECK(op.eps > 0 && Width(op.in) == Width(op.out) && Width(op.in) % op.width == 0);
    Check(op.weight, op.width);
    Check(op.bias, op.width);
  }
  void operator()(const LinearOp& op) const {
    const int64_t in = Width(op.in), out = Width(op.out);
    const bool columns = op.one_matrix() && op.layout == MatrixLayout::kInOut;
    const int64_t matrices = op.matrices - std::ssize(op.more_matrices);
    Check(op.weight, columns ? (in - 1) * op.weight.shape[1] + out : matrices * in * out);
    Check(op.bias, op.bias_each ? op.matrices * out : out);
  }
  void operator()(const RouteOp& op) const {
    SLUICE_CHECK(op.chosen >= 1 && op.chosen <= Width(op.logits) && Width(op.in) == Width(op.out));
  }
  void operator()(const CombineOp& op) const {
    SLUICE_CHECK(Width(op.in) == Width(op.out));
    Check(op.bias, Width(op.out));
  }
  void operator()(const RopeStoreOp& op) const { SLUICE_CHECK(Width(op.k) == Width(op.v)); }
  void operator()(const AttentionOp& op) const {
    SLUICE_CHECK(Width(op.q) == Width(op.out) && op.scale > 0 && op.window >= 0);
    if (op.relative) {
      const RelativeTables& tables = *op.relative;
      SLUICE_CHECK(tables.span > 0 && (tables.keys || tables.queries) && !op.causal);
      for (const int64_t d : {int64_t{0}, int64_t{1}, -tables.span, tables.max_distance,
                              -(int64_t{1} << 20), int64_t{1} << 20}) {
        const int64_t row = RelativeRow(d, tables.span, tables.max_distance);
        SLUICE_CHECK(row >= 0 && row < 2 * tables.span);
      }
    }
    if (!op.relative_bias.present()) return;
    const int64_t buckets = op.relative_bias.shape[0];
    for (const int64_t d :
         {int64_t{0}, int64_t{1}, int64_t{-1}, op.relative_distance, -(int64_t{1} << 20)}) {
      const int64_t bucket = RelativeBucket(d, buckets, op.relative_distance);
      SLUICE_CHECK(bucket >= 0 && bucket < buckets);
    }
  }
  void operator()(const ExchangeOp& op) const {
    SLUICE_CHECK(op.in != op.out && Width(op.in) == Width(op.out));
    SLUICE_CHECK(Width(op.in) % op.tokens == 0);
  }
  void operator()(const ActivationOp& op) const { SLUICE_CHECK(Width(op.in) == Width(op.out)); }
  void operator()(const MixOp& op) const {
    SLUICE_CHECK(Width(op.a) == Width(op.out) && Width(op.out) % op.repeat == 0);
    Check(op.a_weight, Width(op.out) / op.repeat);
    Check(op.b_weight, Width(op.out) / op.repeat);
  }
  void operator()(const HeadOp& op) const { Check(op.weight, Width(op.in)); }
};

// Checks the sizes that backends allocate and index by: the buffers of every op exist and have a
// width.
void CheckGraph(const ModelConfig& config) {
  const Graph graph = BuildGraph(config);
  for (const GraphBuffer& buffer : graph.buffers) {
    SLUICE_CHECK(buffer.width >= 1 && buffer.width <= 4 * 65536);
  }
  SLUICE_CHECK(graph.ops.size() <= 64 * static_cast<size_t>(config.layers) + 64);
  for (const GraphOp& op : graph.ops) std::visit(PartsFit{graph}, op);
  for (const double frequency : RopeFrequencies(config.rope, config.rotary_dim())) {
    SLUICE_CHECK(std::isfinite(frequency) && frequency >= 0);
  }
}

}  // namespace
}  // namespace sluice

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  const auto config = sluice::ParseModelConfig(sluice::fuzz::AsText(data, size));
  if (!config.ok()) {
    sluice::fuzz::CheckRefusal(config.status());
    return false;
  }
  sluice::CheckShape(*config);
  sluice::CheckTokens(*config);
  sluice::CheckGraph(*config);
  return true;
}
