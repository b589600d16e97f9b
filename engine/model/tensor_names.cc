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

}  // namespace sluice
