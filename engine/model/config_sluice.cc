// Reads the explicit keys of SluiceForCausalLM and SluiceModel; see config.h.
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/model/config_reader.h"

namespace sluice {
namespace {

void ReadNorm(ObjectReader& extensions, NormConfig& norm) {
  ObjectReader object = extensions.Object("norm");
  object.AllowOnly({"kind", "eps", "weight", "bias", "unit_offset", "order", "embedding", "final",
                    "first", "depth_scale"});
  norm.kind = object.Enum<NormKind>("kind");
  norm.eps = static_cast<float>(object.Number("eps", 1e-20, 1.0, 1e-6));
  norm.weight = object.Boolean("weight", true);
  norm.bias = object.Boolean("bias", false);
  norm.unit_offset = object.Boolean("unit_offset", false);
  norm.order = object.Enum<NormOrder>("order");
  norm.embedding = object.Boolean("embedding", false);
  norm.final = object.Boolean("final", true);
  norm.first = object.Boolean("first", true);
  norm.depth_scale = object.Boolean("depth_scale", false);
  if (norm.bias && norm.kind == NormKind::kRms) object.Fail("bias", "needs kind \"layer\"");
  if (norm.unit_offset && !norm.weight) object.Fail("unit_offset", "needs a weight");
  if (!norm.first && norm.order != NormOrder::kPre) object.Fail("first", "needs order \"pre\"");
}

void ReadRotation(ObjectReader& root, ObjectReader& object, ModelConfig& config) {
  const int64_t dims = object.Integer("dims", 1, config.head_dim, config.head_dim);
  if (dims % 2 != 0) {
    object.Fail("dims", absl::StrCat("is ", dims, ", must be even"));
    return;
  }
  ReadRope(root, config, {.dims = dims});
  config.rope.reversed = object.Boolean("reversed", false);
  config.rope.neighbours = object.Boolean("neighbours", false);
  if (config.rope.neighbours && dims != config.head_dim) {
    object.Fail("neighbours", absl::StrCat("needs dims ", config.head_dim, ", the head_dim"));
  }
  const std::vector<bool> unrotated = object.Flags("unrotated", config.layers);
  if (object.Has("unrotated")) config.unrotated = unrotated;
  if (!object.Has("local_theta")) return;
  config.local_rope = {.theta = object.Number("local_theta", 1.0, 1e12),
                       .dims = dims,
                       .reversed = config.rope.reversed};
}

void ReadPositions(ObjectReader& root, ObjectReader& extensions, ModelConfig& config) {
  ObjectReader object = extensions.Object("positions");
  object.AllowOnly(
      {"kind", "dims", "reversed", "neighbours", "local_theta", "unrotated", "offset"});
  config.positions = object.Enum<PositionKind>("kind");
  if (config.positions == PositionKind::kRope) ReadRotation(root, object, config);
  if (config.positions == PositionKind::kLearned) {
    config.position_offset = object.Integer("offset", 0, kMaxWidth, 0);
    config.position_rows = config.max_positions + config.position_offset;
  }
  if (config.positions != PositionKind::kRope) {
    for (const char* key : {"dims", "reversed", "neighbours", "local_theta", "unrotated"}) {
      if (object.Has(key)) object.Fail(key, "needs kind \"rope\"");
    }
  }
  if (config.positions != PositionKind::kLearned && object.Has("offset")) {
    object.Fail("offset", "needs kind \"learned\"");
  }
}

// Requires that the direction and the weights of attention are in the config.
void ReadDisentangled(ObjectReader& attention, ModelConfig& config) {
  ObjectReader object = attention.Object("disentangled");
  object.AllowOnly({"span", "max_distance", "terms", "shared", "norm"});
  config.disentangled = {.span = object.Integer("span", 1, kMaxModelPositions),
                         .max_distance = object.Integer("max_distance", 0, kMaxModelPositions, 0),
                         .terms = object.Enum<RelativeTermKind>("terms"),
                         .shared = object.Boolean("shared", true),
                         .norm = object.Boolean("norm", false)};
  if (config.causal) attention.Fail("disentangled", "needs causal false");
  if (config.attention_divisor > 0) attention.Fail("disentangled", "needs weights \"softmax\"");
  CheckDisentangled(object, "span", "max_distance", config);
}

void ReadAttention(ObjectReader& extensions, ModelConfig& config) {
  ObjectReader object = extensions.Object("attention");
  object.AllowOnly({"causal", "window", "windowed", "scale", "soft_cap", "alibi", "relative_bias",
                    "disentangled", "qk_norm", "qk_norm_eps", "qk_norm_weight", "query_gain",
                    "weights", "divisor", "qkv_silu", "gate"});
  config.causal = object.Boolean("causal", true);
  config.window = object.Integer("window", 0, kMaxModelPositions, 0);
  config.windowed = object.Flags("windowed", config.layers);
  if (object.Has("windowed") != (config.window > 0)) {
    object.Fail("windowed", "and attention.window must be set together");
  }
  config.score_scale = static_cast<float>(object.Number("scale", 1e-6, 1e6, 0));
  config.score_soft_cap = static_cast<float>(object.Number("soft_cap", 0, 1e6, 0));
  if (object.Has("relative_bias")) {
    ObjectReader bias = object.Object("relative_bias");
    bias.AllowOnly({"buckets", "max_distance"});
    ReadRelativeBias(bias, "buckets", "max_distance", config);
    if (config.causal) object.Fail("relative_bias", "needs causal false");
  }
  config.relative_bias.alibi = object.Boolean("alibi", false);
  if (config.relative_bias.alibi && (config.causal || object.Has("relative_bias"))) {
    object.Fail("alibi", "needs causal false and no relative_bias");
  }
  config.qk_norm = object.Boolean("qk_norm", false);
  config.qk_norm_weight = object.Enum<QkNormWeight>("qk_norm_weight");
  config.qk_norm_eps =
      static_cast<float>(object.Number("qk_norm_eps", 1e-20, 1.0, config.qk_norm_eps));
  config.query_gain = object.Boolean("query_gain", false);
  if (object.Choice("weights", {"softmax", "silu"}) == 1) {
    config.attention_divisor = object.Number("divisor", 1, 1e9, config.max_positions);
  } else if (object.Has("divisor")) {
    object.Fail("divisor", "needs weights \"silu\"");
  }
  if (object.Has("disentangled")) ReadDisentangled(object, config);
  config.qkv_silu = object.Boolean("qkv_silu", false);
  config.attention_gate = object.Boolean("gate", false);
  if (config.attention_gate && config.norm.order != NormOrder::kPre) {
    object.Fail("gate", "needs norm.order \"pre\"");
  }
}

void ReadMlp(ObjectReader& extensions, ModelConfig& config) {
  ObjectReader object = extensions.Object("mlp");
  object.AllowOnly({"activation", "gated", "present"});
  config.activation = object.Enum<Activation>("activation");
  config.gated_mlp = object.Boolean("gated", true);
  config.has_mlp = object.Boolean("present", true);
}

void ReadExpertsObject(ObjectReader& extensions, ModelConfig& config) {
  if (!extensions.Has("experts")) return;
  ObjectReader object = extensions.Object("experts");
  object.AllowOnly({"count", "chosen", "width", "weights", "bias", "layers"});
  ReadExperts(object, config, {.count_key = "count", .chosen_key = "chosen"});
  ExpertsConfig& experts = config.experts;
  experts.width = object.Integer("width", 1, 4 * kMaxWidth, config.intermediate_size);
  experts.softmax = object.Enum<kernels::RouteSoftmax>("weights");
  experts.bias = object.Boolean("bias", false);
  if (object.Has("layers") && experts.count > 0) {
    experts.layers = object.Flags("layers", config.layers);
  }
  if (!config.has_mlp) object.Fail("count", "needs an MLP");
}

void ReadBiases(ObjectReader& extensions, ModelConfig& config) {
  ObjectReader object = extensions.Object("biases");
  object.AllowOnly({"qkv", "o", "mlp", "down", "head"});
  config.qkv_bias = object.Boolean("qkv", false);
  config.output_bias = object.Boolean("o", false);
  config.mlp_bias = object.Boolean("mlp", false);
  config.down_bias = object.Boolean("down", config.mlp_bias);
  config.head_bias = object.Boolean("head", false);
}

void ReadResidual(ObjectReader& extensions, ModelConfig& config) {
  const int block = extensions.Choice("block", {"sequential", "parallel", "parallel_norms"});
  config.parallel_blocks = block > 0;
  config.parallel_norms = block == 2;
  config.branch_scale = extensions.Boolean("branch_scale", false);
  config.residual_mix = extensions.Boolean("residual_mix", false);
  config.skip_weights = extensions.Boolean("skip_weights", false);
  config.embedding_scale = static_cast<float>(extensions.Number("embedding_scale", -1e6, 1e6, 1.0));
  config.embedding_width = extensions.Integer("embedding_width", 0, kMaxWidth, 0);
  config.layer_groups = extensions.Integer("layer_groups", 0, config.layers, 0);
  config.token_types = extensions.Integer("token_types", 0, kMaxWidth, 0);
  config.logit_scale = static_cast<float>(extensions.Number("logit_scale", 1e-6, 1e6, 1));
  config.logit_soft_cap = static_cast<float>(extensions.Number("logit_soft_cap", 0, 1e6, 0));
  if (config.parallel_blocks && config.norm.order != NormOrder::kPre) {
    extensions.Fail("block", "parallel needs norm.order \"pre\"");
  }
  if (config.parallel_blocks && !config.norm.first) {
    extensions.Fail("block", "parallel needs norm.first");
  }
}

}  // namespace

void ReadSluice(ObjectReader& root, ObjectReader& extensions, ModelConfig& config) {
  extensions.AllowOnly({"tokenizer",
                        "input",
                        "position_wise",
                        "xsa",
                        "norm",
                        "positions",
                        "attention",
                        "mlp",
                        "experts",
                        "biases",
                        "block",
                        "branch_scale",
                        "residual_mix",
                        "skip_weights",
                        "embedding_scale",
                        "embedding_width",
                        "layer_groups",
                        "token_types",
                        "logit_scale",
                        "logit_soft_cap",
                        "embedding",
                        "classifier",
                        "extraction",
                        "position_alignment",
                        "truncate",
                        "quantization",
                        "quantization_group",
                        "quantize_head",
                        "kv_dtype",
                        "long_context",
                        "mixer"});
  ReadNorm(extensions, config.norm);
  ReadPositions(root, extensions, config);
  ReadAttention(extensions, config);
  ReadMlp(extensions, config);
  ReadExpertsObject(extensions, config);
  ReadBiases(extensions, config);
  ReadResidual(extensions, config);
  config.mixer = extensions.Enum<MixerKind>("mixer");
  if (!config.has_mlp && config.parallel_blocks) extensions.Fail("block", "needs an MLP");
  if (config.logit_scale != 1 && !config.norm.final) {
    extensions.Fail("logit_scale", "needs norm.final");
  }
  if (config.embedding_width > 0 &&
      (config.disentangled.span > 0 || (config.has_lm_head && config.tie_word_embeddings))) {
    extensions.Fail("embedding_width",
                    "needs tie_word_embeddings false and no attention.disentangled");
  }
}

}  // namespace sluice
