#include "engine/model/tensor_names.h"

#include "absl/strings/str_cat.h"
#include "engine/model/families/family.h"

namespace sluice {

TensorSpelling FindSpelling(const ModelFamily& family,
                            const std::function<bool(const std::string&)>& has) {
  const TensorNames& names = family.names;
  const std::string embedding = absl::StrCat(names.embedding, ".weight");
  TensorSpelling spelling;
  spelling.without_prefix = has(embedding) && !has(names.prefix + embedding);
  const std::string norm =
      absl::StrCat(spelling.without_prefix ? "" : names.prefix, names.embedding_norm, ".gamma");
  spelling.gamma_beta = has(norm);
  return spelling;
}

std::vector<SharedTensor> SharedTensors(const ModelConfig& config) {
  const TensorNames& names = config.family->names;
  constexpr std::string_view kDecoder = "decoder.weight";
  std::vector<SharedTensor> shared;
  for (const char* const prefix : {names.prefix, ""}) {
    const std::string embedding = absl::StrCat(prefix, names.embedding, ".weight");
    if (*names.embedding_copy != '\0') {
      shared.push_back({embedding, absl::StrCat(prefix, names.embedding_copy, ".weight")});
    }
    if (config.tie_word_embeddings && config.has_lm_head && *prefix != '\0') {
      shared.push_back({embedding, names.head});
    }
  }
  // The bias of a masked language model belongs to its head and to the head's dense layer.
  const std::string_view head = names.head;
  if (config.head_bias && head.ends_with(kDecoder)) {
    const std::string module(head.substr(0, head.size() - kDecoder.size()));
    for (const char* const bias : {"bias", "decoder.bias"}) {
      if (module + bias != names.head_bias) shared.push_back({names.head_bias, module + bias});
    }
  }
  return shared;
}

}  // namespace sluice
