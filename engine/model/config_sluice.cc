// Reads the explicit keys of SluiceForCausalLM and SluiceModel; see config.h.
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/model/config_reader.h"

namespace sluice {
namespace {

void ReadNorm(ObjectReader& extensions, NormConfig& norm) {
  ObjectReader object = extensions.Object("norm");
  object.AllowOnly({"kind", "eps", "weight", "bias", "order", "embedding", "final", "depth_scale"});
  norm.kind = object.Enum<NormKind>("kind");
  norm.eps = static_cast<float>(object.Number("eps", 1e-20, 1.0, 1e-6));
  norm.weight = object.Boolean("weight", true);
  norm.bias = object.Boolean("bias", false);
  norm.order = object.Enum<NormOrder>("order");
  norm.embedding = object.Boolean("embedding", false);
  norm.final = object.Boolean("final", true);
  norm.depth_scale = object.Boolean("depth_scale", false);
  if (norm.bias && norm.kind == NormKind::kRms) object.Fail("bias", "needs kind \"layer\"");
}

void ReadRotation(ObjectReader& root, ObjectReader& object, ModelConfig& config) {
  ReadRope(root, config.rope);
  config.rope.dims = object.Integer("dims", 1, config.head_dim, config.head_dim);
  config.rope.reversed = object.Boolean("reversed", false);
  if (config.rope.dims % 2 != 0) {
    object.Fail("dims", absl::StrCat("is ", config.rope.dims, ", must be even"));
  }
}

void ReadPositions(ObjectReader& root, ObjectReader& extensions, ModelConfig& config) {
  ObjectReader object = extensions.Object("positions");
  object.AllowOnly({"kind", "dims", "reversed", "offset"});
  config.positions = object.Enum<PositionKind>("kind");
  if (config.positions == PositionKind::kRope) ReadRotation(root, object, config);
  if (config.positions == PositionKind::kLearned) {
    config.position_offset = object.Integer("offset", 0, kMaxWidth, 0);
    config.position_rows = config.max_positions + config.position_offset;
  }
  if (config.positions != PositionKind::kRope) {
    for (const char* key : {"dims", "reversed"}) {
      if (object.Has(key)) object.Fail(key, "needs kind \"rope\"");
    }
  }
  if (config.positions != PositionKind::kLearned && object.Has("offset")) {
    object.Fail("offset", "needs kind \"learned\"");
  }
}

void ReadAttention(ObjectReader& extensions, ModelConfig& config) {
  ObjectReader object = extensions.Object("attention");
  object.AllowOnly({"causal", "qk_norm", "qk_norm_eps", "query_gain"});
  config.causal = object.Boolean("causal", true);
  config.qk_norm = object.Boolean("qk_norm", false);
  config.qk_norm_eps =
      static_cast<float>(object.Number("qk_norm_eps", 1e-20, 1.0, config.qk_norm_eps));
  config.query_gain = object.Boolean("query_gain", false);
}

void ReadMlp(ObjectReader& extensions, ModelConfig& config) {
  ObjectReader object = extensions.Object("mlp");
  object.AllowOnly({"activation", "gated"});
  config.activation = object.Enum<Activation>("activation");
  config.gated_mlp = object.Boolean("gated", true);
}

void ReadBiases(ObjectReader& extensions, ModelConfig& config) {
  ObjectReader object = extensions.Object("biases");
  object.AllowOnly({"qkv", "o", "mlp", "head"});
  config.qkv_bias = object.Boolean("qkv", false);
  config.output_bias = object.Boolean("o", false);
  config.mlp_bias = object.Boolean("mlp", false);
  config.head_bias = object.Boolean("head", false);
}

void ReadResidual(ObjectReader& extensions, ModelConfig& config) {
  config.parallel_blocks = extensions.Choice("block", {"sequential", "parallel"}) == 1;
  config.branch_scale = extensions.Boolean("branch_scale", false);
  config.residual_mix = extensions.Boolean("residual_mix", false);
  config.skip_weights = extensions.Boolean("skip_weights", false);
  config.embedding_scale = static_cast<float>(extensions.Number("embedding_scale", -1e6, 1e6, 1.0));
  config.token_types = extensions.Integer("token_types", 0, kMaxWidth, 0);
  config.logit_soft_cap = static_cast<float>(extensions.Number("logit_soft_cap", 0, 1e6, 0));
  if (config.parallel_blocks && config.norm.order != NormOrder::kPre) {
    extensions.Fail("block", "parallel needs norm.order \"pre\"");
  }
}

}  // namespace

void ReadSluice(ObjectReader& root, ObjectReader& extensions, ModelConfig& config) {
  extensions.AllowOnly({"tokenizer",    "input",           "position_wise",      "xsa",
                        "norm",         "positions",       "attention",          "mlp",
                        "biases",       "block",           "branch_scale",       "residual_mix",
                        "skip_weights", "embedding_scale", "token_types",        "logit_soft_cap",
                        "embedding",    "classifier",      "position_alignment", "truncate",
                        "quantization", "quantize_head"});
  ReadNorm(extensions, config.norm);
  ReadPositions(root, extensions, config);
  ReadAttention(extensions, config);
  ReadMlp(extensions, config);
  ReadBiases(extensions, config);
  ReadResidual(extensions, config);
}

}  // namespace sluice
