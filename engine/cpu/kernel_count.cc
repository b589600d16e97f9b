#include "engine/cpu/kernel_count.h"

#include <variant>

#include "base/ceil_div.h"
#include "engine/cpu/int8_layout.h"
#include "engine/cpu/select_attention.h"
#include "engine/model/rope.h"
#include "kernels/cpu/attention_schedule.h"
#include "kernels/cpu/head.h"

namespace sluice {
namespace {

// Counts the kernels of an op; one overload for each kind.
class KernelCounter {
 public:
  KernelCounter(const Model& model, const StepSizes& step, const AttentionVariant& attention,
                int threads)
      : model_(model), step_(step), attention_(KernelOrder(attention)), threads_(threads) {}

  int64_t Count(const GraphOp& op, const RowQuantization& quantization) {
    quantizes_ = quantization.weights != Quantization::kNone;
    return std::visit(*this, op);
  }

  int64_t operator()(const EmbedOp&) const { return 1; }
  int64_t operator()(const InputOp&) const { return 0; }
  // A norm or an activation quantises the rows that it writes in the same loop.
  int64_t operator()(const NormOp&) const { return 1; }
  int64_t operator()(const ActivationOp&) const { return 1; }
  int64_t operator()(const LinearOp&) const { return quantizes_ ? 2 : 1; }
  // The choice, and the copies of rows.
  int64_t operator()(const RouteOp&) const { return 2; }
  int64_t operator()(const CombineOp&) const { return 1; }
  int64_t operator()(const ExchangeOp&) const { return 1; }
  int64_t operator()(const MixOp&) const { return 1; }

  // Queries and keys are rotated apart unless keys and values are stored.
  int64_t operator()(const RopeStoreOp& op) const {
    if (model_.config.causal) return 1;
    return FindRope(op, model_.config).dims > 0 ? 2 : 0;
  }

  // The second kernel adds the parts of divided blocks.
  int64_t operator()(const AttentionOp& op) const {
    const ModelConfig& config = model_.config;
    const kernels::AttentionSequence sequence = {
        .first_position = static_cast<int32_t>(step_.context - step_.tokens),
        .count = static_cast<int32_t>(step_.tokens),
        .rows = nullptr,
        .pages = nullptr};
    const std::vector<kernels::AttentionSequence> sequences(static_cast<size_t>(step_.sequences),
                                                            sequence);
    const kernels::AttentionSizes sizes = {.q_heads = static_cast<int32_t>(config.heads),
                                           .kv_heads = static_cast<int32_t>(config.kv_heads),
                                           .head_dim = static_cast<int32_t>(config.head_dim),
                                           .max_context = step_.context,
                                           .threads = threads_,
                                           .causal = op.causal,
                                           .window = static_cast<int32_t>(op.window),
                                           .kv_type = config.kv_dtype,
                                           .of_rows = !config.causal};
    const kernels::AttentionSchedule schedule(attention_, sizes, sequences);
    return schedule.divided_queries() > 0 ? 2 : 1;
  }

  // For each block of rows: perhaps their quantisation, the product, its summary, and the answers.
  int64_t operator()(const HeadOp& op) const {
    const bool quantized = PrecisionOf(model_, op).quantization != Quantization::kNone;
    return CeilDiv(step_.sequences, kernels::kHeadRows) * (quantized ? 4 : 3);
  }

 private:
  const Model& model_;
  const StepSizes& step_;
  const kernels::AttentionChoice attention_;
  const int threads_;
  bool quantizes_ = false;
};

}  // namespace

std::vector<int64_t> CountKernels(const Model& model, const StepSizes& step,
                                  const AttentionVariant& attention, int threads) {
  const std::vector<RowQuantization> quantization = QuantizationOfOps(model);
  KernelCounter counter(model, step, attention, threads);
  std::vector<int64_t> counts;
  counts.reserve(model.graph.ops.size());
  for (size_t i = 0; i < model.graph.ops.size(); ++i) {
    counts.push_back(counter.Count(model.graph.ops[i], quantization[i]));
  }
  return counts;
}

}  // namespace sluice
