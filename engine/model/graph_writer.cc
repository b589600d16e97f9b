#include "engine/model/graph_writer.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/families/family.h"

namespace sluice {

GraphWriter::GraphWriter(const ModelConfig& config, const TensorSpelling& spelling)
    : config_(config),
      names_(config.family->names),
      spelling_(spelling),
      prefix_(spelling.without_prefix ? "" : names_.prefix) {}

BufferId GraphWriter::AddBuffer(std::string name, int64_t width, int64_t rows) {
  graph_.buffers.push_back({.name = std::move(name), .width = width, .rows = rows});
  return static_cast<BufferId>(graph_.buffers.size() - 1);
}

std::string GraphWriter::LayerPrefix(int32_t layer) const {
  const int64_t groups = config_.layer_groups;
  const int64_t own = groups == 0 ? layer : layer * groups / config_.layers;
  return absl::StrCat(prefix_, names_.layer, own, ".", names_.in_layer);
}

TensorPart GraphWriter::Table(const char* module, int64_t rows, int64_t first_row) const {
  const int64_t width = config_.embedding_width > 0 ? config_.embedding_width : config_.hidden_size;
  return {absl::StrCat(prefix_, module, ".weight"), {rows, width}, first_row * width};
}

void GraphWriter::Norm(BufferId in, BufferId out, const std::string& module, float scale) {
  const NormConfig& norm = config_.norm;
  Add(NormOf(norm.kind, in, out, norm.weight ? module : "", norm.bias ? module : "", norm.eps,
             Width(out), scale));
}

NormOp GraphWriter::NormOf(NormKind kind, BufferId in, BufferId out, const std::string& module,
                           const std::string& bias_module, float eps, int64_t width,
                           float scale) const {
  const char* const weight = spelling_.gamma_beta ? ".gamma" : ".weight";
  const char* const bias = spelling_.gamma_beta ? ".beta" : ".bias";
  const bool weighted = !module.empty();
  return {.in = in,
          .out = out,
          .kind = kind,
          .weight = weighted ? TensorPart{module + weight, {width}} : TensorPart{},
          .bias = bias_module.empty() ? TensorPart{} : TensorPart{bias_module + bias, {width}},
          .eps = eps,
          .width = width,
          .scale = scale,
          .weight_offset = weighted && config_.norm.unit_offset ? 1.0f : 0.0f};
}

void GraphWriter::AddScaled(BufferId out, BufferId b, TensorPart weight) {
  Add(MixOp{.a = out, .b = b, .out = out, .a_weight = {}, .b_weight = std::move(weight)});
}

void GraphWriter::Copy(BufferId from, BufferId to) {
  Add(MixOp{.a = from, .b = kNoBuffer, .out = to, .a_weight = {}, .b_weight = {}});
}

LinearOp GraphWriter::DenseOf(int64_t k, int64_t n, const std::string& module, bool bias) const {
  return {.in = kNoBuffer,
          .out = kNoBuffer,
          .weight = {module + ".weight",
                     names_.in_out ? std::vector<int64_t>{k, n} : std::vector<int64_t>{n, k}},
          .layout = names_.in_out ? MatrixLayout::kInOut : MatrixLayout::kOutIn,
          .bias = bias ? TensorPart{module + ".bias", {n}} : TensorPart{},
          .bias_each = false,
          .accumulate = false};
}

void GraphWriter::Dense(BufferId in, BufferId out, const std::string& module, bool bias,
                        bool accumulate) {
  LinearOp op = DenseOf(Width(in), Width(out), module, bias);
  op.in = in;
  op.out = out;
  op.accumulate = accumulate;
  Add(std::move(op));
}

void GraphWriter::PositionWise(BufferId in, BufferId out, const std::string& module,
                               bool accumulate) {
  const PositionWiseConfig& position_wise = config_.position_wise;
  const int64_t positions = position_wise.max_positions, k = Width(in), n = Width(out);
  TensorPart bias;
  if (position_wise.bias == PositionWiseBias::kFeature) bias = {module + ".bias", {n}};
  if (position_wise.bias == PositionWiseBias::kPositionFeature) {
    bias = {module + ".position_bias", {positions, n}};
  }
  Add(LinearOp{.in = in,
               .out = out,
               .weight = {module + ".position_weight", {positions, k, n}},
               .layout = MatrixLayout::kInOut,
               .index = MatrixIndex::kPosition,
               .matrices = positions,
               .bias = std::move(bias),
               .bias_each = position_wise.bias == PositionWiseBias::kPositionFeature,
               .accumulate = accumulate});
}

void GraphWriter::Expert(int32_t layer, Projection projection, BufferId in, BufferId out) {
  const ExpertNames& names = names_.experts;
  const int64_t experts = config_.experts.count, k = Width(in), n = Width(out);
  const bool down = projection == Projection::kDown, gate = projection == Projection::kGate;
  const char* const module = down ? names.down : gate ? names.gate : names.up;
  LinearOp op = {.in = in,
                 .out = out,
                 .weight = {},
                 .layout = MatrixLayout::kOutIn,
                 .index = MatrixIndex::kExpert,
                 .matrices = experts,
                 .bias = {},
                 .bias_each = false,
                 .accumulate = false};
  switch (names.tensors) {
    case ExpertTensors::kEach:
      for (int64_t e = 0; e < experts; ++e) {
        std::string name = absl::StrCat(LayerPrefix(layer), names.each, e, ".", module, ".weight");
        if (e == 0) {
          op.weight = {std::move(name), {n, k}};
        } else {
          op.more_matrices.push_back(std::move(name));
        }
      }
      break;
    case ExpertTensors::kStacked: {
      const bool pair = !down && config_.gated_mlp;
      op.weight = {absl::StrCat(LayerPrefix(layer), module, ".weight"),
                   {experts, pair ? 2 * n : n, k}};
      if (!pair) break;
      op.weight.first = gate ? 0 : n * k;
      op.weight.run = n * k;
      op.weight.stride = 2 * n * k;
      break;
    }
    case ExpertTensors::kFlat:
      op.weight = {LayerPrefix(layer) + module, {experts * (down ? k : n), down ? n : k}};
      if (down) op.layout = MatrixLayout::kInOut;
      break;
  }
  Add(std::move(op));
}

void GraphWriter::Fused(BufferId in, BufferId out, const std::string& module,
                        const Outputs& outputs, bool bias) {
  const int64_t k = Width(in);
  const auto [all, first, run, stride, evens_first] = outputs;
  Add(LinearOp{.in = in,
               .out = out,
               .weight = names_.in_out ? TensorPart{module + ".weight", {k, all}, first}
                                       : TensorPart{module + ".weight",
                                                    {all, k},
                                                    first * k,
                                                    run * k,
                                                    stride * k,
                                                    evens_first},
               .layout = names_.in_out ? MatrixLayout::kInOut : MatrixLayout::kOutIn,
               .bias = bias ? TensorPart{module + ".bias", {all}, first, run, stride, evens_first}
                            : TensorPart{},
               .bias_each = false,
               .accumulate = false});
}

void GraphWriter::Project(int32_t layer, Projection projection, BufferId in, BufferId out,
                          bool bias, bool accumulate) {
  const int p = static_cast<int>(projection);
  const std::string module = LayerPrefix(layer) + names_.projections[p];
  if (config_.position_wise.layers[p][layer]) return PositionWise(in, out, module, accumulate);
  Dense(in, out, module, bias, accumulate);
}

}  // namespace sluice
