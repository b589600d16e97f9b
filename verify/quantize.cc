#include "verify/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
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
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/quantized_rows.h"
#include "kernels/cpu/thread_pool.h"
#include "verify/activations.h"
#include "verify/agreement.h"
#include "verify/quantized_checkpoint.h"
#include "verify/smoothing.h"

namespace sluice::verify {
namespace {

// The shares of SmoothQuant's formula that are tried; none is tried first, and wins ties.
constexpr double kShares[] = {0.3, 0.4, 0.5, 0.6, 0.7, 0.8};
// The exponents of scales are within [-kMostExponent, kMostExponent].
constexpr int kMostExponent = 24;

// Multiplies each column of x, [.., width], by its scale.
std::vector<float> ScaleColumns(std::span<const float> x, std::span<const float> scales) {
  std::vector<float> scaled(x.begin(), x.end());
  for (size_t i = 0; i < scaled.size(); ++i) scaled[i] *= scales[i % scales.size()];
  return scaled;
}

// Sums of squares: of what a projection computes on the sample, and of its error in int8.
struct Squares {
  double output = 0, error = 0;

  Squares operator+(const Squares& other) const {
    return {output + other.output, error + other.error};
  }
  double relative() const { return output == 0 ? 0 : std::sqrt(error / output); }
};

// Products of rows by the columns of a layer, [columns, width], as the daemon computes them.
class Products {
 public:
  std::vector<float> InF32(std::span<const float> x, std::span<const float> w,
                           int64_t width) const {
    return Multiply(kernels::PackedWeights::Pack(context_, SourceOf(w, width)), x, width, {});
  }

  std::vector<float> InInt8(std::span<const float> x, std::span<const float> w,
                            int64_t width) const {
    const int64_t rows = std::ssize(x) / width;
    const int64_t bytes = kernels::QuantizedRows::Bytes(context_.profile, rows, width, false);
    const std::unique_ptr<void, decltype(&std::free)> memory(kernels::AllocateMemory(bytes),
                                                             &std::free);
    SLUICE_CHECK(memory != nullptr);
    const kernels::QuantizedRows quantized(context_.profile, rows, width, false,
                                           static_cast<std::byte*>(memory.get()));
    kernels::QuantizeRows(context_, x.data(), width, rows, quantized);
    return Multiply(kernels::PackedWeights::PackInt8(context_, SourceOf(w, width)), x, width,
                    quantized);
  }

 private:
  static kernels::WeightSource SourceOf(std::span<const float> w, int64_t width) {
    return {.data = w.data(),
            .dtype = kernels::DType::kF32,
            .matrices = 1,
            .k = width,
            .n = std::ssize(w) / width,
            .transposed = true};
  }

  std::vector<float> Multiply(const kernels::PackedWeights& weights, std::span<const float> x,
                              int64_t width, const kernels::QuantizedRows& quantized) const {
    const int64_t rows = std::ssize(x) / width;
    std::vector<float> out(static_cast<size_t>(rows * weights.n()));
    kernels::Gemm(context_, weights, rows,
                  {.x = x.data(),
                   .ldx = width,
                   .bias = nullptr,
                   .bias_stride = 0,
                   .out = out.data(),
                   .ldo = weights.n(),
                   .accumulate = false,
                   .quantized = quantized});
    return out;
  }

  mutable kernels::ThreadPool pool_{kernels::AvailableCpus()};
  const kernels::Context context_{kernels::BestProfile(), &pool_};
};

Squares Compare(std::span<const float> exact, std::span<const float> found) {
  Squares squares;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double error = static_cast<double>(found[i]) - exact[i];
    squares.output += static_cast<double>(exact[i]) * exact[i];
    squares.error += error * error;
  }
  return squares;
}

class Quantizer {
 public:
  Quantizer(std::shared_ptr<const Model> model, std::vector<EnteringRows> entering)
      : model_(std::move(model)), entering_(std::move(entering)) {
    for (const GraphOp& op : model_->graph.ops) {
      const auto* const linear = std::get_if<LinearOp>(&op);
      const bool stored = linear != nullptr && linear->layout == MatrixLayout::kOutIn;
      if (stored && linear->weight.run == 0) candidates_.insert(linear->weight.name);
    }
    // A tensor that another op reads as well stays as it is.
    for (const GraphOp& op : model_->graph.ops) {
      const auto* const linear = std::get_if<LinearOp>(&op);
      if (linear != nullptr && linear->layout != MatrixLayout::kOutIn) {
        candidates_.erase(linear->weight.name);
      }
      if (const auto* const head = std::get_if<HeadOp>(&op)) candidates_.erase(head->weight.name);
      if (const auto* const embed = std::get_if<EmbedOp>(&op)) candidates_.erase(embed->table.name);
    }
  }

  // Chooses the scales of all groups, and measures their layers.
  absl::Status Choose(bool smooth) {
    for (const SmoothingGroup& group : FindSmoothingGroups(*model_)) {
      SLUICE_RETURN_IF_ERROR(ChooseGroup(group, smooth));
    }
    return absl::OkStatus();
  }

  // Returns the names of the tensors that are written in int8.
  std::set<std::string> Quantized(double keep_above) const {
    std::set<std::string> names;
    for (const auto& [name, layer] : layers_) {
      if (keep_above == 0 || layer.smoothed.relative() <= keep_above) names.insert(name);
    }
    return names;
  }

  const TensorScales& scales() const { return scales_; }
  size_t layers() const { return layers_.size(); }

  std::string Report(double keep_above) const {
    const std::set<std::string> quantized = Quantized(keep_above);
    Squares plain, smoothed;
    std::string text = "error in int8, of the layer's output on the sample: plain, smoothed\n";
    for (const auto& [name, layer] : layers_) {
      absl::StrAppendFormat(&text, "%-60s %8.5f %8.5f%s\n", name, layer.plain.relative(),
                            layer.smoothed.relative(), quantized.contains(name) ? "" : "  kept");
      // Each layer counts alike, whatever the size of its output.
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
    Squares plain, smoothed;
  };

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

  absl::Status ChooseGroup(const SmoothingGroup& group, bool smooth) {
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
    const auto measure = [&](std::span<const float> scales, size_t reader) {
      std::vector<float> inverse(scales.begin(), scales.end());
      for (float& value : inverse) value = 1 / value;
      return Compare(exact[reader],
                     products_.InInt8(ScaleColumns(entering_[reader].rows, inverse),
                                      ScaleColumns(weights[reader], scales), group.width));
    };
    const auto error = [&](std::span<const float> scales) {
      double sum = 0;  // of the squares of relative errors
      for (const auto& [reader, unused] : weights) {
        sum += std::pow(measure(scales, reader).relative(), 2);
      }
      return sum;
    };
    std::vector<float> best(static_cast<size_t>(group.width), 1.0f);
    const std::vector<float> ones = best;
    if (smooth && group.producer != SmoothingGroup::Producer::kNone) {
      double least = error(best);
      for (const double share : kShares) {
        std::vector<float> scales = Scales(group, weights, share);
        const double found = error(scales);
        if (!(found < least)) continue;
        least = found;
        best = std::move(scales);
      }
    }
    for (const auto& [reader, unused] : weights) {
      Layer& layer = layers_[Linear(reader).weight.name];
      layer.plain = layer.plain + measure(ones, reader);
      layer.smoothed = layer.smoothed + measure(best, reader);
    }
    if (best != ones) Fold(group, best);
    return absl::OkStatus();
  }

  // Returns powers of two near |x|^share / |w|^(1 - share), with the largest magnitudes of the rows
  // that enter and of the weights of each of the producer's features.
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
          std::clamp<double>(std::nearbyint(exponent), -kMostExponent, kMostExponent));
      scales[d] = std::ldexp(1.0f, rounded);
    }
    return scales;
  }

  // Multiplies the columns of the readers by the scales, and divides what makes their rows.
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
  std::set<std::string> candidates_;          // tensors that may be in int8
  std::map<std::string, Layer> layers_;       // by tensor
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
    return named(
        absl::InvalidArgumentError("takes no token ids, so that texts show nothing of it"));
  }
  if (AnyQuantized(**model)) return named(absl::InvalidArgumentError("is quantised already"));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Text> texts, ReadTexts(**model, options.text));
  auto entering = CollectRows(*model, texts);
  if (!entering.ok()) return named(entering.status());
  Quantizer quantizer(*model, *std::move(entering));
  SLUICE_RETURN_IF_ERROR(quantizer.Choose(options.smooth));
  if (quantizer.layers() == 0) {
    return named(absl::InvalidArgumentError("has no layer that is stored [out, in]"));
  }
  const std::set<std::string> quantized = quantizer.Quantized(options.keep_above);
  SLUICE_RETURN_IF_ERROR(WriteQuantizedCheckpoint((*model)->checkpoint, model_directory,
                                                  options.out, quantizer.scales(), quantized));
  return absl::StrCat(quantizer.Report(options.keep_above), "written to ", options.out, "\n");
}

}  // namespace sluice::verify
