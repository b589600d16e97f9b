#include "engine/cpu/lower.h"

#include <array>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/interruption.h"
#include "base/size_of.h"
#include "base/status_macros.h"
#include "engine/cpu/attention_ops.h"
#include "engine/cpu/head_op.h"
#include "engine/cpu/int8_plan.h"
#include "engine/cpu/row_ops.h"
#include "engine/cpu/select_attention.h"
#include "engine/cpu/weights.h"
#include "engine/model/kept_channels.h"
#include "engine/model/relative_bias.h"
#include "engine/model/rope.h"

namespace sluice {
namespace {

using CpuOpOr = absl::StatusOr<std::unique_ptr<const CpuOp>>;

// Lowers ops; one overload for each kind.
class CpuLowering {
 public:
  CpuLowering(const Model& model, const kernels::Context& context,
              const AttentionVariant& attention)
      : model_(model),
        config_(model.config),
        graph_(model.graph),
        weights_(model.checkpoint, model.config.stored_quantization, context),
        attention_(KernelOrder(attention)),
        quantization_(PlanQuantization(model)) {}

  CpuOpOr Lower(size_t op) {
    op_ = op;
    return std::visit(*this, graph_.ops[op]);
  }

  CpuOpOr operator()(const EmbedOp& op) {
    SLUICE_ASSIGN_OR_RETURN(auto table, weights_.AsStored(op.table));
    return MakeCpuEmbed(op, std::move(table), Width(op.out));
  }

  CpuOpOr operator()(const InputOp& op) { return MakeCpuInput(op); }

  CpuOpOr operator()(const NormOp& op) {
    SLUICE_ASSIGN_OR_RETURN(auto weight, weights_.Floats(op.weight, op.width));
    SLUICE_ASSIGN_OR_RETURN(auto bias, weights_.Floats(op.bias, op.width));
    if (op.scale != 1 && weight.empty()) weight.assign(op.width, 1);
    for (float& value : weight) value = (op.weight_offset + value) * op.scale;
    for (float& value : bias) value *= op.scale;
    return MakeCpuNorm(op, Width(op.in) / op.width, std::move(weight), std::move(bias),
                       quantization_[op_]);
  }

  CpuOpOr operator()(const LinearOp& op) {
    const int64_t k = Width(op.in);
    const int64_t n = Width(op.out);
    SLUICE_ASSIGN_OR_RETURN(auto bias,
                            weights_.Floats(op.bias, op.position_bias ? op.bias.shape[0] * n : n));
    const WeightPrecision precision = PrecisionOf(model_, op);
    SLUICE_ASSIGN_OR_RETURN(
        auto packed, op.position_wise() ? weights_.PositionWise(op.weight, precision)
                                        : weights_.Dense(op.weight, op.layout, k, n, precision));
    return MakeCpuLinear(op, std::move(packed), std::move(bias), quantization_[op_]);
  }

  CpuOpOr operator()(const RopeStoreOp& op) {
    std::shared_ptr<const RopeTable>& table = rope_[static_cast<size_t>(op.rope)];
    const RopeOf rope = FindRope(op, config_);
    if (table == nullptr) {
      table = std::make_shared<RopeTable>(
          MakeRopeTable(*rope.rope, rope.dims, rope.dims == 0 ? 0 : config_.max_positions));
    }
    return MakeCpuRopeStore(op, config_, static_cast<int32_t>(rope.dims), table);
  }

  CpuOpOr operator()(const AttentionOp& op) {
    std::vector<float> gate;
    if (!op.xsa_gate.empty()) {
      SLUICE_ASSIGN_OR_RETURN(gate, weights_.Floats({op.xsa_gate, {config_.heads}}, config_.heads));
      for (float& value : gate) value = static_cast<float>(std::tanh(static_cast<double>(value)));
    }
    SLUICE_ASSIGN_OR_RETURN(auto bias, RelativeBias(op));
    const auto& rows = std::get<RopeStoreOp>(graph_.ops[op_ - 1]);
    return MakeCpuAttention(op, rows, config_, std::move(gate), std::move(bias), attention_);
  }

  CpuOpOr operator()(const ActivationOp& op) {
    return MakeCpuActivation(op, Width(op.in), quantization_[op_]);
  }

  CpuOpOr operator()(const ExchangeOp& op) { return MakeCpuExchange(op, Width(op.in)); }

  CpuOpOr operator()(const MixOp& op) {
    SLUICE_ASSIGN_OR_RETURN(auto a_weight, MixWeight(op.a_weight, op));
    SLUICE_ASSIGN_OR_RETURN(auto b_weight, MixWeight(op.b_weight, op));
    return MakeCpuMix(op, Width(op.out), std::move(a_weight), std::move(b_weight));
  }

  CpuOpOr operator()(const HeadOp& op) {
    SLUICE_ASSIGN_OR_RETURN(auto bias, weights_.Floats(op.bias, config_.vocab_size));
    SLUICE_ASSIGN_OR_RETURN(auto head, weights_.Dense(op.weight, MatrixLayout::kOutIn, Width(op.in),
                                                      config_.vocab_size, PrecisionOf(model_, op)));
    if (!head.kept_channels().empty()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", NameOfKeptChannels(op.weight.name),
                                                     " is not supported: a head keeps none"));
    }
    return MakeCpuHead(op.in, std::move(head),
                       {std::move(bias), op.soft_cap, model_.items ? &*model_.items : nullptr});
  }

  bool in_bf16() const { return weights_.in_bf16(); }
  int64_t bytes() const {
    int64_t bytes = weights_.bytes();
    for (const auto& table : rope_) {
      if (table != nullptr) bytes += 2 * std::ssize(table->cos) * kSizeOf<float>;
    }
    if (bias_ != nullptr) bytes += std::ssize(*bias_) * kSizeOf<float>;
    return bytes;
  }

 private:
  // Returns the bias by distance, which all layers share; nullptr if the op has none.
  absl::StatusOr<std::shared_ptr<const std::vector<float>>> RelativeBias(const AttentionOp& op) {
    if (!op.relative_bias.present() || bias_ != nullptr) return bias_;
    const int64_t buckets = op.relative_bias.shape[0];
    SLUICE_ASSIGN_OR_RETURN(const auto table,
                            weights_.Floats(op.relative_bias, buckets * config_.heads));
    bias_ = std::make_shared<std::vector<float>>(
        BiasByDistance(table, config_.heads, op.relative_distance, config_.max_positions));
    return bias_;
  }

  // Returns [width] values, each repeated as often as the op says.
  absl::StatusOr<std::vector<float>> MixWeight(const TensorPart& part, const MixOp& op) {
    auto values = weights_.Floats(part, Width(op.out) / op.repeat);
    if (!values.ok() || op.repeat == 1) return values;
    std::vector<float> repeated;
    for (const float value : *values) repeated.insert(repeated.end(), op.repeat, value);
    return repeated;
  }

  int64_t Width(BufferId id) const { return graph_.buffers[id].width; }

  const Model& model_;
  const ModelConfig& config_;
  const Graph& graph_;
  WeightLoader weights_;
  const kernels::AttentionChoice attention_;
  const std::vector<RowQuantization> quantization_;       // of each op
  size_t op_ = 0;                                         // the op that is lowered
  std::array<std::shared_ptr<const RopeTable>, 3> rope_;  // by RopeUse
  std::shared_ptr<const std::vector<float>> bias_;
};

}  // namespace

absl::StatusOr<LoweredModel> Lower(const Model& model, const kernels::Context& context,
                                   const AttentionVariant& attention) {
  CpuLowering lowering(model, context, attention);
  LoweredModel lowered;
  for (size_t i = 0; i < model.graph.ops.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    SLUICE_ASSIGN_OR_RETURN(auto cpu_op, lowering.Lower(i));
    lowered.ops.push_back(std::move(cpu_op));
  }
  const BufferId output = model.graph.output;
  const GraphBuffer& states = model.graph.buffers[output];
  lowered.ops.push_back(MakeCpuState(output, states.width));
  lowered.weight_bytes = lowering.bytes();
  lowered.in_bf16 = lowering.in_bf16();
  return lowered;
}

}  // namespace sluice
