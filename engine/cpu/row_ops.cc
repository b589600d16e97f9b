#include "engine/cpu/row_ops.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/exchange.h"
#include "kernels/cpu/mix.h"
#include "kernels/cpu/norm.h"

namespace sluice {
namespace {

// Returns the step's rows of k values for an op that quantises them, or none.
kernels::QuantizedRows RowsWritten(const StepRun& run, const RowQuantization& quantization,
                                   int64_t k) {
  kernels::QuantizedRows rows = run.quantized(k, quantization.weights);
  if (!quantization.factors.empty()) rows.MultiplyBy(quantization.factors.data());
  return rows;
}

class CpuEmbed final : public CpuOp {
 public:
  CpuEmbed(const EmbedOp& op, StoredTensor table, int64_t width)
      : op_(op), table_(std::move(table)), width_(width) {}

  void Execute(const StepRun& run) const override {
    kernels::Embed(run.context, {.table = table_.bytes.data(),
                                 .dtype = table_.dtype,
                                 .ids = Ids(run.batch),
                                 .rows = run.rows(),
                                 .dim = width_,
                                 .accumulate = op_.accumulate,
                                 .scale = op_.scale,
                                 .out = run.buffer(op_.out)});
  }

 private:
  const int32_t* Ids(const StepBatch& batch) const {
    switch (op_.index) {
      case EmbedIndex::kToken:
        return batch.token_ids().data();
      case EmbedIndex::kPosition:
        return batch.positions().data();
      case EmbedIndex::kType:
        break;
    }
    return batch.types().empty() ? nullptr : batch.types().data();
  }

  EmbedOp op_;
  StoredTensor table_;
  int64_t width_;
};

class CpuInput final : public CpuOp {
 public:
  explicit CpuInput(const InputOp& op) : op_(op) {}

  void Execute(const StepRun& run) const override {
    SLUICE_CHECK(std::ssize(run.batch.inputs()) == run.rows() * op_.width);
    std::copy(run.batch.inputs().begin(), run.batch.inputs().end(), run.buffer(op_.out));
  }

 private:
  InputOp op_;
};

class CpuNorm final : public CpuOp {
 public:
  CpuNorm(const NormOp& op, int64_t groups, std::vector<float> weight, std::vector<float> bias,
          RowQuantization quantization)
      : op_(op),
        groups_(groups),
        weight_(std::move(weight)),
        bias_(std::move(bias)),
        quantization_(std::move(quantization)) {}

  void Execute(const StepRun& run) const override {
    const int64_t rows = run.rows() * groups_;
    const float* weight = weight_.empty() ? nullptr : weight_.data();
    const kernels::QuantizedRows quantized = RowsWritten(run, quantization_, op_.width);
    switch (op_.kind) {
      case NormKind::kRms:
        return kernels::RmsNorm(run.context, run.buffer(op_.in), weight, op_.eps, rows, op_.width,
                                run.buffer(op_.out), quantized);
      case NormKind::kLayer:
        return kernels::LayerNorm(run.context, run.buffer(op_.in), weight,
                                  bias_.empty() ? nullptr : bias_.data(), op_.eps, rows, op_.width,
                                  run.buffer(op_.out), quantized);
    }
  }

 private:
  NormOp op_;
  int64_t groups_;
  std::vector<float> weight_, bias_;
  RowQuantization quantization_;
};

Quantization QuantizationOf(kernels::WeightFormat format) {
  if (format == kernels::WeightFormat::kInt8) return Quantization::kInt8;
  return format == kernels::WeightFormat::kInt4 ? Quantization::kInt4 : Quantization::kNone;
}

// A dense layer, with one matrix for all rows, or a position-wise projection, with one for each
// position.
class CpuLinear final : public CpuOp {
 public:
  CpuLinear(const LinearOp& op, kernels::PackedWeights weights, std::vector<float> bias,
            RowQuantization quantization)
      : in_(op.in),
        out_(op.out),
        accumulate_(op.accumulate),
        by_position_(op.position_wise()),
        weights_(std::move(weights)),
        bias_stride_(op.position_bias ? weights_.n() : 0),
        bias_(std::move(bias)),
        quantization_(std::move(quantization)) {}

  void Execute(const StepRun& run) const override {
    kernels::GemmArgs args = {.x = run.buffer(in_),
                              .ldx = weights_.k(),
                              .bias = bias_.empty() ? nullptr : bias_.data(),
                              .bias_stride = bias_stride_,
                              .out = run.buffer(out_),
                              .ldo = weights_.n(),
                              .accumulate = accumulate_};
    args.quantized = run.quantized(weights_.k(), QuantizationOf(weights_.format()));
    if (quantization_.weights != Quantization::kNone) {
      kernels::QuantizeRows(run.context, args.x, args.ldx, run.rows(),
                            RowsWritten(run, quantization_, weights_.k()));
    }
    if (by_position_) {
      kernels::GroupedGemm(run.context, weights_, run.batch.groups(), args);
    } else {
      kernels::Gemm(run.context, weights_, run.rows(), args);
    }
  }

 private:
  BufferId in_, out_;
  bool accumulate_, by_position_;
  kernels::PackedWeights weights_;
  int64_t bias_stride_;
  std::vector<float> bias_;  // empty, [n] or [positions, n]
  RowQuantization quantization_;
};

class CpuActivation final : public CpuOp {
 public:
  CpuActivation(const ActivationOp& op, int64_t width, RowQuantization quantization)
      : op_(op), width_(width), quantization_(std::move(quantization)) {}

  void Execute(const StepRun& run) const override {
    kernels::Activate(run.context, op_.activation, run.buffer(op_.in),
                      op_.up == kNoBuffer ? nullptr : run.buffer(op_.up), run.rows(), width_,
                      run.buffer(op_.out), RowsWritten(run, quantization_, width_));
  }

 private:
  ActivationOp op_;
  int64_t width_;
  RowQuantization quantization_;
};

class CpuExchange final : public CpuOp {
 public:
  CpuExchange(const ExchangeOp& op, int64_t width) : op_(op), width_(width) {}

  void Execute(const StepRun& run) const override {
    kernels::Exchange(run.context, {.in = run.buffer(op_.in),
                                    .places = run.batch.sequence_rows(),
                                    .tokens = op_.tokens,
                                    .block = width_ / op_.tokens,
                                    .out = run.buffer(op_.out)});
  }

 private:
  ExchangeOp op_;
  int64_t width_;
};

class CpuMix final : public CpuOp {
 public:
  CpuMix(const MixOp& op, int64_t width, std::vector<float> a_weight, std::vector<float> b_weight)
      : op_(op), width_(width), a_weight_(std::move(a_weight)), b_weight_(std::move(b_weight)) {}

  void Execute(const StepRun& run) const override {
    kernels::Mix(run.context, {.a = run.buffer(op_.a),
                               .a_weight = a_weight_.empty() ? nullptr : a_weight_.data(),
                               .b = op_.b == kNoBuffer ? nullptr : run.buffer(op_.b),
                               .b_weight = b_weight_.empty() ? nullptr : b_weight_.data(),
                               .rows = run.rows(),
                               .dim = width_,
                               .out = run.buffer(op_.out)});
  }

 private:
  MixOp op_;
  int64_t width_;
  std::vector<float> a_weight_, b_weight_;
};

}  // namespace

std::unique_ptr<const CpuOp> MakeCpuEmbed(const EmbedOp& op, StoredTensor table, int64_t width) {
  return std::make_unique<CpuEmbed>(op, std::move(table), width);
}

std::unique_ptr<const CpuOp> MakeCpuInput(const InputOp& op) {
  return std::make_unique<CpuInput>(op);
}

std::unique_ptr<const CpuOp> MakeCpuNorm(const NormOp& op, int64_t groups,
                                         std::vector<float> weight, std::vector<float> bias,
                                         RowQuantization quantization) {
  return std::make_unique<CpuNorm>(op, groups, std::move(weight), std::move(bias),
                                   std::move(quantization));
}

std::unique_ptr<const CpuOp> MakeCpuLinear(const LinearOp& op, kernels::PackedWeights weights,
                                           std::vector<float> bias, RowQuantization quantization) {
  return std::make_unique<CpuLinear>(op, std::move(weights), std::move(bias),
                                     std::move(quantization));
}

std::unique_ptr<const CpuOp> MakeCpuActivation(const ActivationOp& op, int64_t width,
                                               RowQuantization quantization) {
  return std::make_unique<CpuActivation>(op, width, std::move(quantization));
}

std::unique_ptr<const CpuOp> MakeCpuExchange(const ExchangeOp& op, int64_t width) {
  return std::make_unique<CpuExchange>(op, width);
}

std::unique_ptr<const CpuOp> MakeCpuMix(const MixOp& op, int64_t width, std::vector<float> a_weight,
                                        std::vector<float> b_weight) {
  return std::make_unique<CpuMix>(op, width, std::move(a_weight), std::move(b_weight));
}

}  // namespace sluice
