#include "engine/cpu/lower.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/enum_names.h"
#include "base/interruption.h"
#include "base/size_of.h"
#include "base/status_macros.h"
#include "engine/cpu/cpu_adapter.h"
#include "engine/cpu/head_op.h"
#include "engine/cpu/int8_layout.h"
#include "engine/cpu/relative_tables.h"
#include "engine/cpu/select_attention.h"
#include "engine/cpu/weights.h"
#include "engine/model/kept_channels.h"
#include "engine/model/relative_bias.h"
#include "engine/model/rope.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/exchange.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/mix.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/rope.h"

namespace sluice {
namespace {

using CpuOpOr = absl::StatusOr<CpuOp>;

const float* DataOrNull(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}

const int32_t* EmbeddedIds(EmbedIndex index, const StepBatch& batch) {
  switch (index) {
    case EmbedIndex::kToken:
      return batch.token_ids().data();
    case EmbedIndex::kPosition:
      return batch.positions().data();
    case EmbedIndex::kType:
      break;
  }
  return batch.types().empty() ? nullptr : batch.types().data();
}

// Returns `count` rows of k values for an op that quantises them, or none.
kernels::QuantizedRows RowsWritten(const StepRun& run, const RowQuantization& quantization,
                                   int64_t count, int64_t k) {
  kernels::QuantizedRows rows = run.quantized(count, k, quantization.weights);
  if (!quantization.factors.empty()) rows.MultiplyBy(quantization.factors.data());
  return rows;
}

Quantization QuantizationOf(kernels::WeightFormat format) {
  if (format == kernels::WeightFormat::kInt8) return Quantization::kInt8;
  return format == kernels::WeightFormat::kInt4 ? Quantization::kInt4 : Quantization::kNone;
}

kernels::XsaForm XsaFormOf(const ModelConfig& config, const AttentionOp& op) {
  if (!op.xsa) return kernels::XsaForm::kOff;
  return config.xsa.form == XsaConfig::Form::kNorm ? kernels::XsaForm::kNorm
                                                   : kernels::XsaForm::kSquared;
}

// Returns the rows of a layer, [rows, heads], of XSA diagnostics [layers, rows, heads]. The kernel
// does not write to them without XSA.
float* LayerOfDiagnostics(const AttentionOp& op, int64_t values, float* all) {
  if (all == nullptr) return nullptr;
  float* layer = all + op.layer * values;
  if (!op.xsa) std::fill_n(layer, values, 0.0f);
  return layer;
}

// Lowers ops; one overload for each kind.
class CpuLowering {
 public:
  CpuLowering(const Model& model, const kernels::Context& context,
              const AttentionVariant& attention)
      : model_(model),
        config_(model.config),
        graph_(model.graph),
        weights_(model.checkpoint, model.config.stored_quantization, context),
        relative_(model, context),
        attention_(KernelOrder(attention)),
        quantization_(QuantizationOfOps(model)) {}

  CpuOpOr Lower(size_t op) {
    op_ = op;
    return std::visit(*this, graph_.ops[op]);
  }

  CpuOpOr operator()(const EmbedOp& op) {
    SLUICE_ASSIGN_OR_RETURN(auto table, weights_.AsStored(op.table));
    CpuOp layer = [op, table = std::move(table), width = Width(op.out)](const StepRun& run) {
      kernels::Embed(run.context, {.table = table.bytes.data(),
                                   .dtype = table.dtype,
                                   .ids = EmbeddedIds(op.index, run.batch),
                                   .rows = run.rows(),
                                   .dim = width,
                                   .accumulate = op.accumulate,
                                   .scale = op.scale,
                                   .out = run.buffer(op.out)});
    };
    if (!graph_.takes_adapters || !op.adaptable()) return layer;
    return [layer = std::move(layer), op, index = op_, n = Width(op.out)](const StepRun& run) {
      layer(run);
      if (run.batch.adapter_groups().empty()) return;
      AddAdapters(run, op, index, EmbeddedIds(op.index, run.batch), n);
    };
  }

  CpuOpOr operator()(const InputOp& op) {
    return [op](const StepRun& run) {
      SLUICE_CHECK(std::ssize(run.batch.inputs()) == run.rows() * op.width);
      std::copy(run.batch.inputs().begin(), run.batch.inputs().end(), run.buffer(op.out));
    };
  }

  CpuOpOr operator()(const NormOp& op) {
    SLUICE_ASSIGN_OR_RETURN(auto weight, weights_.Floats(op.weight, op.width));
    SLUICE_ASSIGN_OR_RETURN(auto bias, weights_.Floats(op.bias, op.width));
    if (op.scale != 1 && weight.empty()) weight.assign(op.width, 1);
    for (float& value : weight) value = (op.weight_offset + value) * op.scale;
    for (float& value : bias) value *= op.scale;
    return [op, groups = Width(op.in) / op.width, weight = std::move(weight),
            bias = std::move(bias), quantization = quantization_[op_]](const StepRun& run) {
      const int64_t rows = run.rows() * groups;
      const kernels::QuantizedRows quantized = RowsWritten(run, quantization, rows, op.width);
      switch (op.kind) {
        case NormKind::kRms:
          return kernels::RmsNorm(run.context, run.buffer(op.in), DataOrNull(weight), op.eps, rows,
                                  op.width, run.buffer(op.out), quantized);
        case NormKind::kLayer:
          return kernels::LayerNorm(run.context, run.buffer(op.in), DataOrNull(weight),
                                    DataOrNull(bias), op.eps, rows, op.width, run.buffer(op.out),
                                    quantized);
      }
    };
  }

  CpuOpOr operator()(const LinearOp& op) {
    const int64_t k = Width(op.in);
    const int64_t n = Width(op.out);
    const int64_t n_each = op.bias_each ? n : 0;
    SLUICE_ASSIGN_OR_RETURN(auto bias, weights_.Floats(op.bias, std::max(op.matrices * n_each, n)));
    SLUICE_ASSIGN_OR_RETURN(auto packed, WeightsOf(op, k, n));
    CpuOp layer = [in = op.in, out = op.out, accumulate = op.accumulate, index = op.index, n_each,
                   rows_each = Rows(op.in), weights = std::move(packed), bias = std::move(bias),
                   quantization = quantization_[op_]](const StepRun& run) {
      kernels::GemmArgs args = {.x = run.buffer(in),
                                .ldx = weights.k(),
                                .bias = DataOrNull(bias),
                                .bias_stride = n_each,
                                .out = run.buffer(out),
                                .ldo = weights.n(),
                                .accumulate = accumulate};
      const int64_t rows = run.rows() * rows_each;
      args.quantized = run.quantized(rows, weights.k(), QuantizationOf(weights.format()));
      if (quantization.weights != Quantization::kNone) {
        kernels::QuantizeRows(run.context, args.x, args.ldx, rows,
                              RowsWritten(run, quantization, rows, weights.k()));
      }
      switch (index) {
        case MatrixIndex::kNone:
          return kernels::Gemm(run.context, weights, rows, args);
        case MatrixIndex::kPosition:
          return kernels::GroupedGemm(run.context, weights, run.batch.groups(), args);
        case MatrixIndex::kExpert:
          return kernels::GroupedGemm(run.context, weights,
                                      {run.routes(weights.matrices(), rows_each).groups,
                                       static_cast<size_t>(weights.matrices())},
                                      args);
      }
    };
    return Adapted(op, std::move(layer));
  }

  CpuOpOr operator()(const RouteOp& op) {
    return [op, experts = Width(op.logits), width = Width(op.out)](const StepRun& run) {
      const kernels::Routes routes = run.routes(experts, op.chosen);
      kernels::Route(run.context, run.buffer(op.logits), op.softmax, routes);
      kernels::CopyToPlaces(run.context, routes, run.buffer(op.in), width, run.buffer(op.out));
    };
  }

  CpuOpOr operator()(const CombineOp& op) {
    SLUICE_ASSIGN_OR_RETURN(auto bias, weights_.Floats(op.bias, Width(op.out)));
    return [op, experts = config_.experts.count, width = Width(op.out),
            bias = std::move(bias)](const StepRun& run) {
      kernels::Combine(run.context, run.routes(experts, op.chosen),
                       {.x = run.buffer(op.in),
                        .bias = DataOrNull(bias),
                        .dim = width,
                        .accumulate = op.accumulate,
                        .out = run.buffer(op.out)});
    };
  }

  // Rotates queries, and keys as it writes them to pages with the values. If attention reads the
  // step's own rows instead, keys are rotated in place and nothing is written.
  CpuOpOr operator()(const RopeStoreOp& op) {
    std::shared_ptr<const RopeTable>& table = rope_[static_cast<size_t>(op.rope)];
    const RopeOf rope = FindRope(op, config_);
    if (table == nullptr) {
      table = std::make_shared<RopeTable>(
          MakeRopeTable(*rope.rope, rope.dims, rope.dims == 0 ? 0 : config_.max_positions));
    }
    const kernels::RopeTable rotations = {table->cos.data(), table->sin.data(),
                                          static_cast<int32_t>(rope.dims)};
    return [op, table, rotations, stores = config_.causal,
            heads = static_cast<int32_t>(config_.heads)](const StepRun& run) {
      const kernels::KvLayer kv = run.slot.kv_layer(op.layer);
      const int32_t* const positions = run.batch.positions().data();
      float *const q = run.buffer(op.q), *const k = run.buffer(op.k);
      if (stores) {
        return kernels::RopeAndStore(run.context, rotations, positions, run.batch.kv_slots().data(),
                                     run.rows(), heads, q, k, run.buffer(op.v), kv);
      }
      kernels::Rotate(run.context, rotations, positions, run.rows(), heads, kv.head_dim, q);
      kernels::Rotate(run.context, rotations, positions, run.rows(), kv.kv_heads, kv.head_dim, k);
    };
  }

  CpuOpOr operator()(const AttentionOp& op) {
    std::vector<float> gate;
    if (!op.xsa_gate.empty()) {
      SLUICE_ASSIGN_OR_RETURN(gate, weights_.Floats({op.xsa_gate, {config_.heads}}, config_.heads));
      for (float& value : gate) value = static_cast<float>(std::tanh(static_cast<double>(value)));
    }
    SLUICE_ASSIGN_OR_RETURN(auto bias, RelativeBias(op));
    std::shared_ptr<const kernels::RelativePositions> relative;
    if (op.relative) {
      SLUICE_ASSIGN_OR_RETURN(relative, relative_.Make(*op.relative));
    }
    const kernels::AttentionArgs same = {
        .q = nullptr,
        .out = nullptr,
        .q_heads = static_cast<int32_t>(config_.heads),
        .scale = op.scale,
        .causal = op.causal,
        .window = static_cast<int32_t>(op.window),
        .soft_cap = op.soft_cap,
        .bias = bias == nullptr ? nullptr : bias->data(),
        .bias_positions = static_cast<int32_t>(config_.max_positions),
        .relative = relative.get(),
        .silu_share = op.silu_share,
        .xsa = XsaFormOf(config_, op),
        .xsa_eps = config_.xsa.eps,
        .xsa_gate = nullptr,
        .cos_sim = nullptr,
        .proj_frac = nullptr,
        .choice = attention_};
    // If attention is in both directions, it reads the keys and values of the op that rotated them.
    size_t rotation = op_ - 1;
    while (!std::holds_alternative<RopeStoreOp>(graph_.ops[rotation])) --rotation;
    const auto& stored = std::get<RopeStoreOp>(graph_.ops[rotation]);
    return [op, same, k = config_.causal ? kNoBuffer : stored.k,
            v = config_.causal ? kNoBuffer : stored.v, gate = std::move(gate),
            bias = std::move(bias), relative = std::move(relative)](const StepRun& run) {
      kernels::AttentionArgs args = same;
      args.q = run.buffer(op.q);
      args.out = run.buffer(op.out);
      if (k != kNoBuffer) args.k = run.buffer(k);
      if (v != kNoBuffer) args.v = run.buffer(v);
      args.xsa_gate = DataOrNull(gate);
      const int64_t values = run.rows() * args.q_heads;
      args.cos_sim = LayerOfDiagnostics(op, values, run.batch.xsa_cos_sim);
      args.proj_frac = LayerOfDiagnostics(op, values, run.batch.xsa_proj_frac);
      kernels::Attention(run.context, args, run.slot.kv_layer(op.layer), run.slot.sequences(),
                         run.batch.max_context(), run.at(run.layout.attention_scratch));
    };
  }

  CpuOpOr operator()(const ActivationOp& op) {
    return [op, width = Width(op.in), rows_each = Rows(op.in),
            quantization = quantization_[op_]](const StepRun& run) {
      const int64_t rows = run.rows() * rows_each;
      kernels::Activate(run.context, op.activation, run.buffer(op.in),
                        op.up == kNoBuffer ? nullptr : run.buffer(op.up), rows, width,
                        run.buffer(op.out), RowsWritten(run, quantization, rows, width));
    };
  }

  CpuOpOr operator()(const ExchangeOp& op) {
    return [op, block = Width(op.in) / op.tokens](const StepRun& run) {
      kernels::Exchange(run.context, {.in = run.buffer(op.in),
                                      .places = run.batch.sequence_rows(),
                                      .tokens = op.tokens,
                                      .block = block,
                                      .out = run.buffer(op.out)});
    };
  }

  CpuOpOr operator()(const MixOp& op) {
    SLUICE_ASSIGN_OR_RETURN(auto a_weight, MixWeight(op.a_weight, op));
    SLUICE_ASSIGN_OR_RETURN(auto b_weight, MixWeight(op.b_weight, op));
    return [a = op.a, b = op.b, out = op.out, width = Width(op.out), a_weight = std::move(a_weight),
            b_weight = std::move(b_weight)](const StepRun& run) {
      kernels::Mix(run.context, {.a = run.buffer(a),
                                 .a_weight = DataOrNull(a_weight),
                                 .b = b == kNoBuffer ? nullptr : run.buffer(b),
                                 .b_weight = DataOrNull(b_weight),
                                 .rows = run.rows(),
                                 .dim = width,
                                 .out = run.buffer(out)});
    };
  }

  CpuOpOr operator()(const HeadOp& op) {
    SLUICE_ASSIGN_OR_RETURN(auto bias, weights_.Floats(op.bias, config_.vocab_size));
    SLUICE_ASSIGN_OR_RETURN(auto head, weights_.Dense(op.weight, MatrixLayout::kOutIn, Width(op.in),
                                                      config_.vocab_size, PrecisionOf(model_, op)));
    if (!head.kept_channels().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", NameOfKeptChannels(op.weight.name),
                       " is not supported: a head has no kept channels"));
    }
    return MakeCpuHead(op.in, std::move(head),
                       {std::move(bias), op.soft_cap, model_.items ? &*model_.items : nullptr});
  }

  int64_t bytes() const {
    int64_t bytes = weights_.bytes() + relative_.bytes();
    for (const auto& table : rope_) {
      if (table != nullptr) bytes += 2 * std::ssize(table->cos) * kSizeOf<float>;
    }
    if (bias_ != nullptr) bytes += std::ssize(*bias_) * kSizeOf<float>;
    return bytes;
  }

 private:
  absl::StatusOr<kernels::PackedWeights> WeightsOf(const LinearOp& op, int64_t k, int64_t n) {
    const WeightPrecision precision = PrecisionOf(model_, op);
    if (op.routes && !precision.stored) return weights_.Router(op.weight, k, n);
    if (!op.one_matrix()) return weights_.Matrices(op, k, n, precision);
    return weights_.Dense(op.weight, op.layout, k, n, precision);
  }

  // Returns the op of a layer, followed by the products of adapters if it may have any.
  CpuOp Adapted(const LinearOp& op, CpuOp layer) const {
    if (!graph_.takes_adapters || !op.adaptable()) return layer;
    return [layer = std::move(layer), op, index = op_, k = Width(op.in),
            n = Width(op.out)](const StepRun& run) {
      layer(run);
      if (!run.batch.adapter_groups().empty()) AddAdapters(run, op, index, k, n);
    };
  }

  // Returns the bias by distance, which all layers share; nullptr if the op has none.
  absl::StatusOr<std::shared_ptr<const std::vector<float>>> RelativeBias(const AttentionOp& op) {
    if (!op.biased() || bias_ != nullptr) return bias_;
    if (op.alibi) {
      bias_ = std::make_shared<std::vector<float>>(
          AlibiByDistance(config_.heads, config_.max_positions));
      return bias_;
    }
    const int64_t buckets = op.relative_bias.shape[0];
    SLUICE_ASSIGN_OR_RETURN(const auto table,
                            weights_.Floats(op.relative_bias, buckets * config_.heads));
    bias_ = std::make_shared<std::vector<float>>(
        BiasByDistance(table, config_.heads, op.relative_distance, config_.max_positions));
    return bias_;
  }

  // Returns [width] values, each repeated as the op requires.
  absl::StatusOr<std::vector<float>> MixWeight(const TensorPart& part, const MixOp& op) {
    auto values = weights_.Floats(part, Width(op.out) / op.repeat);
    if (!values.ok() || op.repeat == 1) return values;
    std::vector<float> repeated;
    for (const float value : *values) repeated.insert(repeated.end(), op.repeat, value);
    return repeated;
  }

  int64_t Width(BufferId id) const { return graph_.buffers[id].width; }
  // Returns the rows of each token.
  int64_t Rows(BufferId id) const { return graph_.buffers[id].rows; }

  const Model& model_;
  const ModelConfig& config_;
  const Graph& graph_;
  WeightLoader weights_;
  RelativeTableMaker relative_;
  const kernels::AttentionChoice attention_;
  const std::vector<RowQuantization> quantization_;  // of each op
  size_t op_ = 0;                                    // the op that is lowered
  std::array<std::shared_ptr<const RopeTable>, CountEnumerators<RopeUse>()> rope_;  // by RopeUse
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
  const Graph& graph = model.graph;
  lowered.ops.push_back(MakeCpuState(graph.output, graph.trunk, graph.buffers[graph.output].width));
  lowered.weight_bytes = lowering.bytes();
  return lowered;
}

}  // namespace sluice
