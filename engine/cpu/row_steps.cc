#include "engine/cpu/row_steps.h"

#include <utility>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/norm.h"

namespace sluice {
namespace {

class EmbedStep final : public Step {
 public:
  EmbedStep(const EmbedOp& op, StoredTensor table, int64_t width)
      : table_(std::move(table)), width_(width), out_(op.out) {}

  void Execute(const StepRun& run) const override {
    kernels::Embed(run.context, table_.bytes.data(), table_.dtype, run.batch.token_ids().data(),
                   run.rows(), width_, run.buffer(out_));
  }

 private:
  StoredTensor table_;  // [vocab, width]
  int64_t width_;
  BufferId out_;
};

class RmsNormStep final : public Step {
 public:
  RmsNormStep(const NormOp& op, std::vector<float> weight)
      : in_(op.in), out_(op.out), eps_(op.eps), weight_(std::move(weight)) {}

  void Execute(const StepRun& run) const override {
    kernels::RmsNorm(run.context, run.buffer(in_), weight_.data(), eps_, run.rows(),
                     static_cast<int64_t>(weight_.size()), run.buffer(out_));
  }

 private:
  BufferId in_, out_;
  float eps_;
  std::vector<float> weight_;
};

// What the dense and the position-wise projection share.
class LinearStep : public Step {
 public:
  LinearStep(const LinearOp& op, int64_t k, int64_t n, std::vector<float> bias)
      : in_(op.in),
        out_(op.out),
        accumulate_(op.accumulate),
        k_(k),
        n_(n),
        bias_stride_(op.position_bias ? n : 0),
        bias_(std::move(bias)) {}

 protected:
  kernels::GemmArgs Args(const StepRun& run) const {
    return {.x = run.buffer(in_),
            .ldx = k_,
            .bias = bias_.empty() ? nullptr : bias_.data(),
            .bias_stride = bias_stride_,
            .out = run.buffer(out_),
            .ldo = n_,
            .accumulate = accumulate_};
  }

 private:
  BufferId in_, out_;
  bool accumulate_;
  int64_t k_, n_, bias_stride_;
  std::vector<float> bias_;  // empty, [n] or [positions, n]
};

class DenseStep final : public LinearStep {
 public:
  DenseStep(const LinearOp& op, std::unique_ptr<kernels::Dense> dense, std::vector<float> bias)
      : LinearStep(op, dense->k(), dense->n(), std::move(bias)), dense_(std::move(dense)) {}

  void Execute(const StepRun& run) const override {
    dense_->Run(run.context, run.rows(), Args(run));
  }

 private:
  std::unique_ptr<kernels::Dense> dense_;
};

class PositionWiseStep final : public LinearStep {
 public:
  PositionWiseStep(const LinearOp& op, kernels::PackedWeights weights, std::vector<float> bias)
      : LinearStep(op, weights.k(), weights.n(), std::move(bias)), weights_(std::move(weights)) {}

  void Execute(const StepRun& run) const override {
    kernels::GroupedGemm(run.context, weights_, run.batch.groups(), Args(run));
  }

 private:
  kernels::PackedWeights weights_;
};

class SwiGluStep final : public Step {
 public:
  SwiGluStep(const ActivationOp& op, int64_t width) : op_(op), width_(width) {}

  void Execute(const StepRun& run) const override {
    kernels::SwiGlu(run.context, run.buffer(op_.in), run.buffer(op_.up), run.rows(), width_,
                    run.buffer(op_.out));
  }

 private:
  ActivationOp op_;
  int64_t width_;
};

}  // namespace

std::unique_ptr<const Step> MakeEmbedStep(const EmbedOp& op, StoredTensor table, int64_t width) {
  return std::make_unique<EmbedStep>(op, std::move(table), width);
}

std::unique_ptr<const Step> MakeRmsNormStep(const NormOp& op, std::vector<float> weight) {
  return std::make_unique<RmsNormStep>(op, std::move(weight));
}

std::unique_ptr<const Step> MakeDenseStep(const LinearOp& op, std::unique_ptr<kernels::Dense> dense,
                                          std::vector<float> bias) {
  return std::make_unique<DenseStep>(op, std::move(dense), std::move(bias));
}

std::unique_ptr<const Step> MakePositionWiseStep(const LinearOp& op, kernels::PackedWeights weights,
                                                 std::vector<float> bias) {
  return std::make_unique<PositionWiseStep>(op, std::move(weights), std::move(bias));
}

std::unique_ptr<const Step> MakeSwiGluStep(const ActivationOp& op, int64_t width) {
  return std::make_unique<SwiGluStep>(op, width);
}

}  // namespace sluice
