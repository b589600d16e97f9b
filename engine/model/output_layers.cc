#include "engine/model/output_layers.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
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
      return Gelu(x);
    case DenseFunction::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case DenseFunction::kSilu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

absl::StatusOr<Checkpoint> OpenWeights(const DenseConfig& dense, const Directory& directory,
                                       FileAccess access) {
  if (dense.folder.empty()) return Checkpoint::OpenFile(directory, dense.file, access);
  SLUICE_ASSIGN_OR_RETURN(const Directory folder, directory.OpenFolder(dense.folder));
  return Checkpoint::Open(folder, access);
}

}  // namespace

absl::StatusOr<OutputLayers> OutputLayers::Load(std::span<const DenseConfig> config,
                                                const Directory& directory, const Checkpoint& model,
                                                FileAccess access) {
  OutputLayers layers;
  for (const DenseConfig& dense : config) {
    const std::string& place = dense.folder.empty() ? dense.file : dense.folder;
    Layer layer{.checkpoint = {}, .linear = {}, .function = dense.function};
    if (!place.empty()) {
      absl::StatusOr<Checkpoint> opened = OpenWeights(dense, directory, access);
      if (!opened.ok()) return OfFile(place, opened.status());
      layer.checkpoint = *std::move(opened);
    }
    const std::string prefix = dense.module.empty() ? "" : absl::StrCat(dense.module, ".");
    absl::StatusOr<StoredLinear> linear =
        StoredLinear::Find(place.empty() ? model : layer.checkpoint, absl::StrCat(prefix, "weight"),
                           dense.bias ? absl::StrCat(prefix, "bias") : "", dense.out, dense.in);
    if (!linear.ok()) return place.empty() ? linear.status() : OfFile(place, linear.status());
    layer.linear = *std::move(linear);
    layers.layers_.push_back(std::move(layer));
  }
  return layers;
}

void OutputLayers::Apply(std::vector<double>* states, Divide divide) const {
  for (const Layer& layer : layers_) {
    *states = layer.linear.Times(*states, divide);
    for (double& value : *states) value = Evaluate(layer.function, value);
  }
}

}  // namespace sluice
