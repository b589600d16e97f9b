// The dense layers between states and an output, such as an embedding. The host computes them in
// double, like engine/model/output_heads.h.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/directory.h"
#include "engine/model/output_heads.h"
#include "engine/model/serving_config.h"

namespace sluice {

class OutputLayers {
 public:
  OutputLayers() = default;  // without layers
  // Reads the weights from the files in `directory`, or from `model`, the model's own weights,
  // which outlive this. Errors name the file.
  static absl::StatusOr<OutputLayers> Load(std::span<const DenseConfig> config,
                                           const Directory& directory, const Checkpoint& model,
                                           FileAccess access);

  // Replaces each of the states, [n, in], with the output of the last layer, [n, out]. An output
  // has the same bits next to any other states.
  void Apply(std::vector<double>* states, Divide divide = Undivided) const;

 private:
  struct Layer {
    Checkpoint checkpoint;  // has the weights, unless they are the model's
    StoredLinear linear;
    DenseFunction function;
  };
  std::vector<Layer> layers_;
};

}  // namespace sluice
