// EuroBERT: Llama with attention in both directions, for masked language models and classifiers.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kEuroBertArchitectures[] = {
    {"EuroBertForMaskedLM", "eurobert", OutputKind::kTokens},
    {"EuroBertForSequenceClassification", "eurobert", OutputKind::kScores},
    {"EuroBertForTokenClassification", "eurobert", OutputKind::kTokenScores},
    {"EuroBertModel", "eurobert", OutputKind::kStates},
};

void ReadEuroBert(ObjectReader& root, ModelConfig& config) {
  ReadLlamaLike(root, config, {}, {.eps = 1e-5});
  config.causal = false;
  config.qkv_bias = config.output_bias = root.Boolean("attention_bias", false);
  config.mlp_bias = config.head_bias = root.Boolean("mlp_bias", false);
  const int pooling = root.Choice("classifier_pooling", {"late", "bos", "mean"});
  config.serving.classifier = {.pooling = pooling == 1 ? Pooling::kCls : Pooling::kMean,
                               .pooler = true,
                               .pooler_module = "dense",
                               .activation = PoolerActivation::kGelu,
                               .supported = pooling != 0};
  config.serving.token_classifier = {};
  if (pooling == 0 && config.architecture == "EuroBertForSequenceClassification") {
    root.Fail("classifier_pooling", "late is not supported, must be \"bos\" or \"mean\"");
  }
}

constexpr TensorNames EuroBertNames() {
  TensorNames names = LlamaNames();
  names.head_bias = "lm_head.bias";
  return names;
}

}  // namespace

const ModelFamily kEuroBertFamily = {
    .title = "EuroBERT",
    .architectures = kEuroBertArchitectures,
    .names = EuroBertNames(),
    .read = ReadEuroBert,
};

}  // namespace sluice
