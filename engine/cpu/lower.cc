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

// One overload an op.
class Lowering {
 public:
  Lowering(const Model& model, const kernels::Context& context)
      : config_(model.config), graph_(model.graph), weights_(model.checkpoint, context) {}

  StepOr operator()(const EmbedOp& op) {
    auto table = weights_.AsStored(op.table, {config_.vocab_size, Width(op.out)});
    if (!table.ok()) return table.status();
    return MakeEmbedStep(op, *std::move(table), Width(op.out));
  }

  StepOr operator()(const RmsNormOp& op) {
    auto weight = weights_.Floats(op.weight, {Width(op.in)});
    if (!weight.ok()) return weight.status();
    return MakeRmsNormStep(op, *std::move(weight));
  }

  StepOr operator()(const LinearOp& op) {
    const int64_t k = Width(op.in);
    const int64_t n = Width(op.out);
    absl::StatusOr<std::vector<float>> bias = std::vector<float>();
    if (!op.bias.empty()) {
      bias = weights_.Floats(op.bias, op.position_bias ? std::vector<int64_t>{op.positions, n}
                                                       : std::vector<int64_t>{n});
    }
    if (!bias.ok()) return bias.status();
    if (op.position_wise) {
      auto packed = weights_.PositionWise(op.weight, op.positions, k, n);
      if (!packed.ok()) return packed.status();
      return MakePositionWiseStep(op, *std::move(packed), *std::move(bias));
    }
    auto dense = weights_.DenseLayer(op.weight, k, n);
    if (!dense.ok()) return dense.status();
    return MakeDenseStep(op, *std::move(dense), *std::move(bias));
  }

  StepOr operator()(const RopeStoreOp& op) {
    if (rope_ == nullptr) rope_ = RopeTables::Make(config_);
    return MakeRopeStoreStep(op, config_, rope_);
  }

  StepOr operator()(const AttentionOp& op) {
    std::vector<float> gate;
    if (!op.xsa_gate.empty()) {
      auto alpha = weights_.Floats(op.xsa_gate, {config_.heads});
      if (!alpha.ok()) return alpha.status();
      gate = *std::move(alpha);
      for (float& value : gate) value = static_cast<float>(std::tanh(static_cast<double>(value)));
    }
    return MakeAttentionStep(op, config_, std::move(gate));
  }

  StepOr operator()(const SwiGluOp& op) { return MakeSwiGluStep(op, Width(op.gate)); }

  StepOr operator()(const HeadOp& op) {
    auto head = weights_.DenseLayer(op.weight, Width(op.in), config_.vocab_size);
    if (!head.ok()) return head.status();
    return MakeHeadStep(op.in, *std::move(head));
  }

  int64_t bytes() const { return weights_.bytes() + (rope_ ? rope_->bytes() : 0); }

 private:
  int64_t Width(BufferId id) const { return graph_.buffers[id].width; }

  const ModelConfig& config_;
  const Graph& graph_;
  WeightLoader weights_;
  std::shared_ptr<const RopeTables> rope_;
};

}  // namespace

absl::StatusOr<LoweredModel> Lower(const Model& model, const kernels::Context& context) {
  Lowering lowering(model, context);
  LoweredModel lowered;
  for (const GraphOp& op : model.graph.ops) {
    StepOr step = std::visit(lowering, op);
    if (!step.ok()) return step.status();
    lowered.steps.push_back(*std::move(step));
  }
  lowered.weight_bytes = lowering.bytes();
  return lowered;
}

}  // namespace sluice
