#include "engine/model/embedding_head.h"

#include <cmath>
#include <utility>

#include "base/status_macros.h"
#include "engine/model/settings_file.h"

namespace sluice {
namespace {

double Evaluate(DenseFunction function, double x) {
  switch (function) {
    case DenseFunction::kIdentity:
      return x;
    case DenseFunction::kTanh:
      return std::tanh(x);
    case DenseFunction::kRelu:
      return x > 0 ? x : 0;
    case DenseFunction::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case DenseFunction::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case DenseFunction::kSilu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

}  // namespace

absl::StatusOr<EmbeddingHead> EmbeddingHead::Load(const ServingConfig& config,
                                                  const Directory& directory, FileAccess access) {
  EmbeddingHead head;
  for (const DenseConfig& dense : config.dense) {
    SLUICE_ASSIGN_OR_RETURN(const Directory folder, directory.OpenFolder(dense.folder));
    absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(folder, access);
    if (!checkpoint.ok()) return OfFile(dense.folder, checkpoint.status());
    absl::StatusOr<StoredLinear> linear = StoredLinear::Find(
        *checkpoint, "linear.weight", dense.bias ? "linear.bias" : "", dense.out, dense.in);
    if (!linear.ok()) return OfFile(dense.folder, linear.status());
    head.layers_.push_back({*std::move(checkpoint), *std::move(linear), dense.function});
  }
  return head;
}

void EmbeddingHead::Apply(std::vector<double>* state, Divide divide) const {
  for (const Layer& layer : layers_) {
    *state = layer.linear.Times(*state, divide);
    for (double& value : *state) value = Evaluate(layer.function, value);
  }
}

}  // namespace sluice
