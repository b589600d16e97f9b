#include "engine/cpu/attention_ops.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/rope.h"

namespace sluice {
namespace {

// Rotates queries, and keys as it writes them to pages with the values. Where attention reads the
// step's own rows instead, keys are rotated in place and nothing is written.
class CpuRopeStore final : public CpuOp {
 public:
  CpuRopeStore(const RopeStoreOp& op, const ModelConfig& config, int32_t rotary_dim,
               std::shared_ptr<const RopeTable> values)
      : op_(op),
        stores_(config.causal),
        heads_(config.heads),
        values_(std::move(values)),
        table_{values_->cos.data(), values_->sin.data(), rotary_dim} {}

  void Execute(const StepRun& run) const override {
    const kernels::KvLayer kv = run.slot.kv_layer(op_.layer);
    const int32_t* const positions = run.batch.positions().data();
    float *const q = run.buffer(op_.q), *const k = run.buffer(op_.k);
    if (stores_) {
      return kernels::RopeAndStore(run.context, table_, positions, run.batch.kv_slots().data(),
                                   run.rows(), heads_, q, k, run.buffer(op_.v), kv);
    }
    kernels::Rotate(run.context, table_, positions, run.rows(), heads_, kv.head_dim, q);
    kernels::Rotate(run.context, table_, positions, run.rows(), kv.kv_heads, kv.head_dim, k);
  }

 private:
  RopeStoreOp op_;
  bool stores_;
  int32_t heads_;
  std::shared_ptr<const RopeTable> values_;
  kernels::RopeTable table_;
};

kernels::XsaForm XsaFormOf(const ModelConfig& config, const AttentionOp& op) {
  if (!op.xsa) return kernels::XsaForm::kOff;
  return config.xsa.form == XsaConfig::Form::kNorm ? kernels::XsaForm::kNorm
                                                   : kernels::XsaForm::kSquared;
}

class CpuAttention final : public CpuOp {
 public:
  CpuAttention(const AttentionOp& op, const RopeStoreOp& rows, const ModelConfig& config,
               std::vector<float> gate, std::shared_ptr<const std::vector<float>> bias,
               const kernels::AttentionChoice& choice)
      : op_(op),
        k_(config.causal ? kNoBuffer : rows.k),
        v_(config.causal ? kNoBuffer : rows.v),
        gate_(std::move(gate)),
        bias_(std::move(bias)),
        args_{.q = nullptr,
              .out = nullptr,
              .q_heads = static_cast<int32_t>(config.heads),
              .scale = op.scale,
              .causal = op.causal,
              .window = static_cast<int32_t>(op.window),
              .soft_cap = op.soft_cap,
              .bias = bias_ == nullptr ? nullptr : bias_->data(),
              .bias_positions = static_cast<int32_t>(config.max_positions),
              .silu_share = op.silu_share,
              .xsa = XsaFormOf(config, op),
              .xsa_eps = config.xsa.eps,
              .xsa_gate = gate_.empty() ? nullptr : gate_.data(),
              .cos_sim = nullptr,
              .proj_frac = nullptr,
              .choice = choice} {}

  void Execute(const StepRun& run) const override {
    kernels::AttentionArgs args = args_;
    args.q = run.buffer(op_.q);
    args.out = run.buffer(op_.out);
    if (k_ != kNoBuffer) args.k = run.buffer(k_);
    if (v_ != kNoBuffer) args.v = run.buffer(v_);
    args.cos_sim = Diagnostics(run, run.batch.xsa_cos_sim);
    args.proj_frac = Diagnostics(run, run.batch.xsa_proj_frac);
    kernels::Attention(run.context, args, run.slot.kv_layer(op_.layer), run.slot.sequences(),
                       run.batch.max_context(), run.at(run.layout.attention_scratch));
  }

 private:
  // Returns this layer's [rows, heads] of [layers, rows, heads]. The kernel does not write to it
  // without XSA.
  float* Diagnostics(const StepRun& run, float* all) const {
    if (all == nullptr) return nullptr;
    const int64_t values = run.rows() * args_.q_heads;
    float* layer = all + op_.layer * values;
    if (!op_.xsa) std::fill_n(layer, values, 0.0f);
    return layer;
  }

  AttentionOp op_;
  BufferId k_, v_;  // kNoBuffer if keys and values are in pages
  std::vector<float> gate_;
  std::shared_ptr<const std::vector<float>> bias_;
  kernels::AttentionArgs args_;  // the part that is the same in all runs
};

}  // namespace

std::unique_ptr<const CpuOp> MakeCpuRopeStore(const RopeStoreOp& op, const ModelConfig& config,
                                              int32_t rotary_dim,
                                              std::shared_ptr<const RopeTable> table) {
  return std::make_unique<CpuRopeStore>(op, config, rotary_dim, std::move(table));
}

std::unique_ptr<const CpuOp> MakeCpuAttention(const AttentionOp& op, const RopeStoreOp& rows,
                                              const ModelConfig& config, std::vector<float> gate,
                                              std::shared_ptr<const std::vector<float>> bias,
                                              const kernels::AttentionChoice& choice) {
  return std::make_unique<CpuAttention>(op, rows, config, std::move(gate), std::move(bias), choice);
}

}  // namespace sluice
