#include "engine/model/serving_config.h"

#include "base/json_reader.h"
#include "engine/model/config.h"

namespace sluice {
namespace {

Pooling ReadPooling(ObjectReader& object, Pooling fallback) {
  if (!object.Has("pooling")) return fallback;
  return object.Enum<Pooling>("pooling");
}

ClassifierConfig ReadClassifier(ObjectReader& extensions, const ModelConfig& config) {
  ClassifierConfig classifier;
  if (!extensions.Has("classifier")) return classifier;
  ObjectReader object = extensions.Object("classifier");
  object.AllowOnly({"labels", "pooling", "pooler", "bias"});
  classifier.labels = object.Integer("labels", 1, kMaxLabels);
  classifier.pooling = ReadPooling(object, config.causal ? Pooling::kLast : Pooling::kCls);
  classifier.pooler = object.Choice("pooler", {"none", "tanh"}) == 1;
  classifier.bias = object.Boolean("bias", true);
  return classifier;
}

// Hugging Face writes the names of the labels, except for two labels without names.
int64_t ReadLabels(ObjectReader& root) {
  constexpr int64_t kDefaultLabels = 2;
  int64_t labels = root.Integer("num_labels", 1, kMaxLabels, kDefaultLabels);
  if (root.Has("id2label")) labels = root.Size("id2label", 1, kMaxLabels);
  return labels;
}

}  // namespace

ServingConfig ReadServing(ObjectReader& root, ObjectReader& extensions, const ModelConfig& config,
                          bool scores) {
  ServingConfig serving;
  ObjectReader embedding = extensions.Object("embedding");
  embedding.AllowOnly({"pooling", "normalize"});
  serving.pooling = ReadPooling(embedding, config.causal ? Pooling::kLast : Pooling::kMean);
  serving.normalize = embedding.Boolean("normalize", false);
  serving.classifier = ReadClassifier(extensions, config);
  if (scores && !extensions.Has("classifier")) {
    serving.classifier = config.serving.classifier;
    serving.classifier.labels = ReadLabels(root);
  }
  serving.alignment = extensions.Enum<PositionAlignment>("position_alignment");
  serving.truncate = extensions.Enum<Truncation>("truncate");
  return serving;
}

}  // namespace sluice
