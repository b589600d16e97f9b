// The dense layers between pooled states and an embedding, as in sentence-transformers. The host
// computes them in double, like engine/model/output_heads.h.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/directory.h"
#include "engine/model/output_heads.h"
#include "engine/model/serving_config.h"

namespace sluice {

class EmbeddingHead {
 public:
  EmbeddingHead() = default;  // without layers
  // Reads the weights of the config's layers from their folders in `directory`. Errors name the
  // folder.
  static absl::StatusOr<EmbeddingHead> Load(const ServingConfig& config, const Directory& directory,
                                            FileAccess access);

  // Replaces the pooled states with the output of the last layer.
  void Apply(std::vector<double>* state, Divide divide = Undivided) const;

 private:
  struct Layer {
    Checkpoint checkpoint;  // has the weights
    StoredLinear linear;
    DenseFunction function;
  };
  std::vector<Layer> layers_;
};

}  // namespace sluice
