#include "engine/cpu/lower.h"

#include <cmath>
#include <utility>
#include <variant>

#include "engine/cpu/attention_steps.h"
#include "engine/cpu/head_step.h"
#include "engine/cpu/row_steps.h"
#include "engine/cpu/weights.h"

namespace sluice {
namespace {

using StepOr = absl::StatusOr<std::unique_ptr<const Step>>;

// Lowers ops; one overload for each kind.
class CpuLowering {
 public:
  CpuLowering(const Model& model, const kernels::Context& context)
      : config_(model.config), graph_(model.graph), weights_(model.checkpoint, context) {}

  StepOr operator()(const EmbedOp& op) {
    auto table = weights_.AsStored(op.table);
    if (!table.ok()) return table.status();
    return MakeEmbedStep(op, *std::move(table), Width(op.out));
  }

  StepOr operator()(const InputOp& op) { return MakeInputStep(op); }

  StepOr operator()(const NormOp& op) {
    auto weight = weights_.Floats(op.weight, op.width);
    if (!weight.ok()) return weight.status();
    auto bias = weights_.Floats(op.bias, op.width);
    if (!bias.ok()) return bias.status();
    if (op.scale != 1 && weight->empty()) weight->assign(op.width, 1);
    for (float& value : *weight) value *= op.scale;
    for (float& value : *bias) value *= op.scale;
    return MakeNormStep(op, Width(op.in) / op.width, *std::move(weight), *std::move(bias));
  }

  StepOr operator()(const LinearOp& op) {
    const int64_t k = Width(op.in);
    const int64_t n = Width(op.out);
    auto bias = weights_.Floats(op.bias, op.position_bias ? op.bias.shape[0] * n : n);
    if (!bias.ok()) return bias.status();
    auto packed = op.position_wise() ? weights_.PositionWise(op.weight)
                                     : weights_.Dense(op.weight, op.layout, k, n);
    if (!packed.ok()) return packed.status();
    return MakeLinearStep(op, *std::move(packed), *std::move(bias));
  }

  StepOr operator()(const RopeStoreOp& op) {
    if (rope_ == nullptr) rope_ = RopeTables::Make(config_);
    return MakeRopeStoreStep(op, config_, rope_);
  }

  StepOr operator()(const AttentionOp& op) {
    std::vector<float> gate;
    if (!op.xsa_gate.empty()) {
      auto alpha = weights_.Floats({op.xsa_gate, {config_.heads}}, config_.heads);
      if (!alpha.ok()) return alpha.status();
      gate = *std::move(alpha);
      for (float& value : gate) value = static_cast<float>(std::tanh(static_cast<double>(value)));
    }
    return MakeAttentionStep(op, config_, std::move(gate));
  }

  StepOr operator()(const ActivationOp& op) { return MakeActivationStep(op, Width(op.in)); }

  StepOr operator()(const MixOp& op) {
    auto a_weight = MixWeight(op.a_weight, op);
    if (!a_weight.ok()) return a_weight.status();
    auto b_weight = MixWeight(op.b_weight, op);
    if (!b_weight.ok()) return b_weight.status();
    return MakeMixStep(op, Width(op.out), *std::move(a_weight), *std::move(b_weight));
  }

  StepOr operator()(const HeadOp& op) {
    auto bias = weights_.Floats(op.bias, config_.vocab_size);
    if (!bias.ok()) return bias.status();
    auto head = weights_.Dense(op.weight, MatrixLayout::kOutIn, Width(op.in), config_.vocab_size);
    if (!head.ok()) return head.status();
    return MakeHeadStep(op.in, *std::move(head), {*std::move(bias), op.soft_cap});
  }

  int64_t bytes() const { return weights_.bytes() + (rope_ ? rope_->bytes() : 0); }

 private:
  // Returns [width] values, each repeated as often as the op says.
  absl::StatusOr<std::vector<float>> MixWeight(const TensorPart& part, const MixOp& op) {
    auto values = weights_.Floats(part, Width(op.out) / op.repeat);
    if (!values.ok() || op.repeat == 1) return values;
    std::vector<float> repeated;
    for (const float value : *values) repeated.insert(repeated.end(), op.repeat, value);
    return repeated;
  }

  int64_t Width(BufferId id) const { return graph_.buffers[id].width; }

  const ModelConfig& config_;
  const Graph& graph_;
  WeightLoader weights_;
  std::shared_ptr<const RopeTables> rope_;
};

}  // namespace

absl::StatusOr<LoweredModel> Lower(const Model& model, const kernels::Context& context) {
  CpuLowering lowering(model, context);
  LoweredModel lowered;
  for (const GraphOp& op : model.graph.ops) {
    StepOr step = std::visit(lowering, op);
    if (!step.ok()) return step.status();
    lowered.steps.push_back(*std::move(step));
  }
  const BufferId output = model.graph.output;
  const GraphBuffer& states = model.graph.buffers[static_cast<size_t>(output)];
  lowered.steps.push_back(MakeStateStep(output, states.width));
  lowered.weight_bytes = lowering.bytes();
  return lowered;
}

}  // namespace sluice
