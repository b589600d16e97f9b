#include "verify/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "engine/model/model.h"
#include "verify/activations.h"
#include "verify/agreement.h"
#include "verify/outliers.h"
#include "verify/products.h"
#include "verify/quantized_checkpoint.h"
#include "verify/smoothing.h"

namespace sluice::verify {
namespace {

// The exponents of SmoothQuant's formula to try. Scales of one are tried first and win ties.
constexpr double kShares[] = {0.3, 0.4, 0.5, 0.6, 0.7, 0.8};
// The fewest channels are kept whose error is at most this many times the error with the most.
constexpr double kNearly = 1.1;
// The exponents of scales are within [-kMaxExponent, kMaxExponent].
constexpr int kMaxExponent = 24;

// Multiplies each column of x, [.., width], by its scale.
std::vector<float> ScaleColumns(std::span<const float> x, std::span<const float> scales) {
  std::vector<float> scaled(x.begin(), x.end());
  for (size_t i = 0; i < scaled.size(); ++i) scaled[i] *= scales[i % scales.size()];
  return scaled;
}

std::vector<float> Inverse(std::span<const float> scales) {
  std::vector<float> inverse(scales.begin(), scales.end());
  for (float& value : inverse) value = 1 / value;
  return inverse;
}

// Returns the number of kept channels to try after `count`: twice as many, and the most last.
int64_t NextCount(int64_t count, int64_t most) {
  return count == most ? most + 1 : std::min(2 * count, most);
}

std::vector<int32_t> Sorted(std::span<const int32_t> channels) {
  std::vector<int32_t> sorted(channels.begin(), channels.end());
  std::ranges::sort(sorted);
  return sorted;
}

// Returns the squares of the readers of a group, with its scales and kept channels.
using Measure = std::function<std::map<size_t, Squares>(std::span<const float> scales,
                                                        std::span<const int32_t> kept)>;

// Returns the root of the sum of the squares of relative errors.
double Error(const std::map<size_t, Squares>& of_readers) {
  double sum = 0;
  for (const auto& [unused, squares] : of_readers) sum += std::pow(squares.relative(), 2);
  return std::sqrt(sum);
}

class Quantizer {
 public:
  Quantizer(std::shared_ptr<const Model> model, std::vector<EnteringRows> entering,
            const QuantizeOptions& options)
      : model_(std::move(model)), entering_(std::move(entering)), options_(options) {
    for (const GraphOp& op : model_->graph.ops) {
      const auto* const linear = std::get_if<LinearOp>(&op);
      const bool stored = linear != nullptr && linear->one_matrix() &&
                          linear->layout == MatrixLayout::kOutIn &&
                          model_->graph.buffers[linear->in].width <= kernels::kMaxInt8Depth;
      if (stored && linear->weight.run == 0) candidates_.insert(linear->weight.name);
    }
    // A tensor is not quantised if it is also read in another layout, by the head, or by the
    // embedding.
    for (const GraphOp& op : model_->graph.ops) {
      const auto* const linear = std::get_if<LinearOp>(&op);
      if (linear != nullptr && linear->layout != MatrixLayout::kOutIn) {
        candidates_.erase(linear->weight.name);
      }
      if (const auto* const head = std::get_if<HeadOp>(&op)) candidates_.erase(head->weight.name);
      if (const auto* const embed = std::get_if<EmbedOp>(&op)) candidates_.erase(embed->table.name);
    }
  }

  // Chooses the scales and the kept channels of all groups, and measures their layers.
  absl::Status Choose() {
    const std::vector<SmoothingGroup> groups = FindSmoothingGroups(*model_);
    std::set<std::string> read;  // by the groups so far
    for (const SmoothingGroup& group : groups) {
      std::set<std::string> names;
      for (const size_t reader : group.readers) names.insert(Linear(reader).weight.name);
      const size_t all = read.size() + names.size();
      read.merge(names);
      SLUICE_CHECK(read.size() == all);  // else the channels of one group would be kept in another
      SLUICE_RETURN_IF_ERROR(ChooseGroup(group));
    }
    return absl::OkStatus();
  }

  // Returns the tensors that are written in int8, and their kept channels.
  QuantizedTensors Quantized() const {
    QuantizedTensors tensors;
    for (const auto& [name, layer] : layers_) {
      if (IsGood(layer.written)) tensors[name] = layer.channels;
    }
    return tensors;
  }

  const TensorScales& scales() const { return scales_; }
  size_t layers() const { return layers_.size(); }

  std::string Report() const {
    const QuantizedTensors quantized = Quantized();
    Squares plain, smoothed;
    std::string text = "error in int8, of the layer's output on the sample: plain, smoothed\n";
    for (const auto& [name, layer] : layers_) {
      absl::StrAppendFormat(&text, "%-60s %8.5f %8.5f", name, layer.plain.relative(),
                            layer.smoothed.relative());
      if (!quantized.contains(name)) {
        text += "  kept";
      } else if (!layer.channels.empty()) {
        absl::StrAppendFormat(&text, " %8.5f with %d channels kept", layer.written.relative(),
                              layer.channels.size());
      }
      text += "\n";
      // Each layer has the same weight, independent of the size of its output.
      plain = plain + Squares{1, layer.plain.error / std::max(layer.plain.output, 1e-300)};
      smoothed =
          smoothed + Squares{1, layer.smoothed.error / std::max(layer.smoothed.output, 1e-300)};
    }
    absl::StrAppendFormat(&text, "%-60s %8.5f %8.5f\n", "root mean square of the layers",
                          plain.relative(), smoothed.relative());
    absl::StrAppendFormat(&text, "%d of %d layers in int8\n", quantized.size(), layers_.size());
    return text;
  }

 private:
  struct Layer {
    Squares plain, smoothed, written;
    std::vector<int32_t> channels;  // that are kept, ascending
  };

  // Returns whether a layer with this error is quantised. If keep_above is 0, all layers are.
  // Otherwise a layer whose error is NaN is not.
  bool IsGood(const Squares& squares) const {
    return options_.keep_above == 0 || squares.relative() <= options_.keep_above;
  }

  const LinearOp& Linear(size_t op) const { return std::get<LinearOp>(model_->graph.ops[op]); }

  absl::StatusOr<std::vector<float>> Weights(const LinearOp& linear) const {
    SLUICE_ASSIGN_OR_RETURN(const Tensor tensor,
                            model_->checkpoint.Find(linear.weight.name, linear.weight.shape));
    const std::vector<GraphBuffer>& buffers = model_->graph.buffers;
    const int64_t count = buffers[linear.in].width * buffers[linear.out].width;
    std::vector<float> values(static_cast<size_t>(count));
    kernels::ConvertToFloat(tensor.data, tensor.dtype, linear.weight.first, count, values.data());
    return values;
  }

  absl::Status ChooseGroup(const SmoothingGroup& group) {
    std::map<size_t, std::vector<float>> weights;  // of the layers that are quantised
    for (const size_t reader : group.readers) {
      const LinearOp& linear = Linear(reader);
      if (!candidates_.contains(linear.weight.name)) continue;
      SLUICE_ASSIGN_OR_RETURN(weights[reader], Weights(linear));
    }
    if (weights.empty()) return absl::OkStatus();
    std::map<size_t, std::vector<float>> exact;
    for (const auto& [reader, values] : weights) {
      exact[reader] = products_.InF32(entering_[reader].rows, values, group.width);
    }
    const Measure measure = [&](std::span<const float> scales, std::span<const int32_t> kept) {
      std::map<size_t, Squares> of_readers;
      for (const auto& [reader, values] : weights) {
        of_readers[reader] = SquaresOf(
            exact[reader], products_.InInt8(ScaleColumns(entering_[reader].rows, Inverse(scales)),
                                            ScaleColumns(values, scales), group.width, kept));
      }
      return of_readers;
    };
    const std::vector<float> ones(static_cast<size_t>(group.width), 1.0f);
    const std::vector<float> scales = BestScales(group, weights, measure);
    const std::vector<int32_t> kept = BestChannels(group, scales, measure);
    const std::map<size_t, Squares> plain = measure(ones, {}), smoothed = measure(scales, {}),
                                    written = measure(scales, kept);
    for (const auto& [reader, unused] : weights) {
      Layer& layer = layers_[Linear(reader).weight.name];
      layer.plain = layer.plain + plain.at(reader);
      layer.smoothed = layer.smoothed + smoothed.at(reader);
      layer.written = layer.written + written.at(reader);
      layer.channels = kept;
    }
    if (scales != ones) Fold(group, scales);
    return absl::OkStatus();
  }

  // Returns the scales with the least error; scales of one win ties.
  std::vector<float> BestScales(const SmoothingGroup& group,
                                const std::map<size_t, std::vector<float>>& weights,
                                const Measure& measure) const {
    std::vector<float> best(static_cast<size_t>(group.width), 1.0f);
    if (!options_.smooth || group.producer == SmoothingGroup::Producer::kNone) return best;
    double least = Error(measure(best, {}));
    for (const double share : kShares) {
      std::vector<float> scales = Scales(group, weights, share);
      const double found = Error(measure(scales, {}));
      if (!(found < least)) continue;
      least = found;
      best = std::move(scales);
    }
    return best;
  }

  // Returns the fewest channels whose error is close to the error with all channels that may be
  // kept.
  std::vector<int32_t> BestChannels(const SmoothingGroup& group, std::span<const float> scales,
                                    const Measure& measure) const {
    const std::vector<int32_t> outliers = Outliers(group, scales);
    if (outliers.empty()) return {};
    const double enough = kNearly * Error(measure(scales, Sorted(outliers)));
    std::vector<int32_t> kept;
    for (int64_t count = 1; count <= std::ssize(outliers);
         count = NextCount(count, std::ssize(outliers))) {
      if (Error(measure(scales, kept)) <= enough) return kept;
      kept = Sorted(std::span(outliers).first(count));
    }
    return kept;
  }

  // Returns the channels that may be kept, the most promising first.
  std::vector<int32_t> Outliers(const SmoothingGroup& group, std::span<const float> scales) const {
    if (options_.keep_channels == 0) return {};
    const std::vector<float>& rows = entering_[group.readers.front()].rows;
    return OutlierChannels(ScaleColumns(rows, Inverse(scales)), group.width,
                           options_.keep_channels);
  }

  // Returns powers of two near |x|^share / |w|^(1 - share). x and w are the largest magnitudes, for
  // each of the producer's features, of the rows that enter and of the weights.
  std::vector<float> Scales(const SmoothingGroup& group,
                            const std::map<size_t, std::vector<float>>& weights,
                            double share) const {
    const auto width = static_cast<size_t>(group.width);
    std::vector<float> entering(width), multiplied(width);
    for (size_t d = 0; d < width; ++d) {
      const auto feature = static_cast<size_t>(group.FeatureOf(static_cast<int64_t>(d)));
      entering[feature] = std::max(entering[feature], entering_[group.readers.front()].largest[d]);
      for (const auto& [unused, values] : weights) {
        for (size_t at = d; at < values.size(); at += width) {
          multiplied[feature] = std::max(multiplied[feature], std::abs(values[at]));
        }
      }
    }
    std::vector<float> scales(width, 1.0f);
    for (size_t d = 0; d < width; ++d) {
      const auto feature = static_cast<size_t>(group.FeatureOf(static_cast<int64_t>(d)));
      if (entering[feature] == 0 || multiplied[feature] == 0) continue;
      const double exponent =
          share * std::log2(entering[feature]) - (1 - share) * std::log2(multiplied[feature]);
      const int rounded = static_cast<int>(
          std::clamp<double>(std::nearbyint(exponent), -kMaxExponent, kMaxExponent));
      scales[d] = std::ldexp(1.0f, rounded);
    }
    return scales;
  }

  // Multiplies the columns of the readers by the scales, and divides the weights that produce their
  // rows.
  void Fold(const SmoothingGroup& group, const std::vector<float>& scales) {
    std::vector<float> inverse(scales.size(), 1.0f);  // by the producer's feature
    for (size_t d = 0; d < scales.size(); ++d) {
      inverse[static_cast<size_t>(group.FeatureOf(static_cast<int64_t>(d)))] = 1 / scales[d];
    }
    for (const size_t reader : group.readers) {
      const LinearOp& linear = Linear(reader);
      if (linear.position_wise()) {
        scales_[linear.weight.name].by_row = scales;
      } else {
        scales_[linear.weight.name].by_column = scales;
      }
    }
    const GraphOp& producer = model_->graph.ops[group.producer_op];
    const int64_t producer_width = group.width / group.group;
    const auto divide = [&](const TensorPart& part, int64_t row_elements) {
      if (!part.present()) return;
      std::vector<float>& rows = scales_[part.name].by_row;
      const int64_t first = part.first / row_elements;
      if (rows.empty()) rows.assign(static_cast<size_t>(part.shape.front()), 1.0f);
      for (int64_t d = 0; d < producer_width; ++d) rows[first + d] *= inverse[d];
    };
    if (const auto* const norm = std::get_if<NormOp>(&producer)) {
      divide(norm->weight, 1);
      divide(norm->bias, 1);
    } else {
      const LinearOp& linear = std::get<LinearOp>(producer);
      divide(linear.weight, model_->graph.buffers[linear.in].width);
      divide(linear.bias, 1);
    }
  }

  const Products products_;
  const std::shared_ptr<const Model> model_;
  const std::vector<EnteringRows> entering_;  // by op
  const QuantizeOptions options_;
  std::set<std::string> candidates_;     // tensors that may be in int8
  std::map<std::string, Layer> layers_;  // by tensor
  TensorScales scales_;
};

}  // namespace

absl::StatusOr<std::string> QuantizeModel(const std::string& model_directory,
                                          const QuantizeOptions& options) {
  const auto named = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(model_directory, ": ", status.message()));
  };
  const auto model =
      LoadModel("quantized", 1, model_directory, {.quantization = QuantizationConfig()});
  if (!model.ok()) return named(model.status());
  if (!(*model)->config.embeds_ids()) {
    return named(absl::InvalidArgumentError("takes no token ids, so texts cannot be used"));
  }
  if (AnyQuantized(**model))
    return named(absl::InvalidArgumentError("is already quantised; name the original model"));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Text> texts, ReadTexts(**model, options.text));
  auto entering = CollectRows(*model, texts);
  if (!entering.ok()) return named(entering.status());
  Quantizer quantizer(*model, *std::move(entering), options);
  if (const absl::Status chosen = quantizer.Choose(); !chosen.ok()) {
    return named(chosen);
  }
  if (quantizer.layers() == 0) {
    return named(absl::InvalidArgumentError("has no layer that is stored [out, in]"));
  }
  SLUICE_RETURN_IF_ERROR(WriteQuantizedCheckpoint((*model)->checkpoint, model_directory,
                                                  options.out, quantizer.scales(),
                                                  quantizer.Quantized()));
  return absl::StrCat(quantizer.Report(), "written to ", options.out, "\n");
}

}  // namespace sluice::verify
