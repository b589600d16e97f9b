#include "tests/support/reference_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "kernels/check.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/linear.h"
#include "kernels/reference/norm.h"
#include "kernels/reference/rope.h"

namespace sluice::testing {
namespace {

using kernels::XsaForm;
using Values = std::vector<double>;

// One overload an op.
class Execution {
 public:
  Execution(const Model& model, std::span<const int32_t> tokens)
      : model_(model),
        config_(model.config),
        tokens_(tokens),
        positions_(tokens.size()),
        buffers_(model.graph.buffers.size()),
        shape_{config_.heads, config_.kv_heads, config_.head_dim} {
    std::iota(positions_.begin(), positions_.end(), 0);
    answer_.xsa_cos_sim.assign(config_.layers * Length() * config_.heads, 0);
    answer_.xsa_proj_frac = answer_.xsa_cos_sim;
    std::optional<kernels::reference::Llama3Scaling> scaling;
    if (config_.rope.llama3) {
      scaling = {config_.rope.llama3->factor, config_.rope.llama3->low_freq_factor,
                 config_.rope.llama3->high_freq_factor,
                 static_cast<double>(config_.rope.llama3->original_max_positions)};
    }
    frequencies_ =
        kernels::reference::InverseFrequencies(config_.head_dim, config_.rope.theta, scaling);
  }

  void operator()(const EmbedOp& op) {
    const int64_t width = Width(op.out);
    const Values table = Weight(op.table);
    Values& out = buffers_[op.out];
    out.clear();
    for (int32_t token : tokens_) {
      out.insert(out.end(), table.begin() + token * width, table.begin() + (token + 1) * width);
    }
  }

  void operator()(const RmsNormOp& op) {
    buffers_[op.out] =
        kernels::reference::RmsNorm(buffers_[op.in], Weight(op.weight), op.eps, Width(op.in));
  }

  void operator()(const LinearOp& op) {
    const int64_t in = Width(op.in);
    const int64_t out = Width(op.out);
    const Values weight = Weight(op.weight);
    const Values bias = op.bias.empty() ? Values() : Weight(op.bias);
    Values result = op.position_wise
                        ? kernels::reference::PositionWise(buffers_[op.in], positions_, weight,
                                                           bias, op.position_bias, in, out)
                        : kernels::reference::Linear(buffers_[op.in], weight, bias, in, out);
    if (op.accumulate) {
      std::transform(result.begin(), result.end(), buffers_[op.out].begin(), result.begin(),
                     std::plus<>());
    }
    buffers_[op.out] = std::move(result);
  }

  void operator()(const RopeStoreOp& op) {
    Rotate(buffers_[op.q]);
    keys_ = buffers_[op.k];
    Rotate(keys_);
    values_ = buffers_[op.v];
  }

  void operator()(const AttentionOp& op) {
    const double scale = 1 / std::sqrt(static_cast<double>(config_.head_dim));
    Values y =
        kernels::reference::Attention(shape_, buffers_[op.q], keys_, values_, 0, op.causal, scale);
    if (!op.xsa) {
      buffers_[op.out] = std::move(y);
      return;
    }
    Values gate = op.xsa_gate.empty() ? Values() : Weight(op.xsa_gate);
    for (double& g : gate) g = std::tanh(g);
    const bool norm = config_.xsa.form == XsaConfig::Form::kNorm;
    auto xsa = kernels::reference::ExcludeSelf(
        shape_, {norm ? XsaForm::kNorm : XsaForm::kSquared, config_.xsa.eps, gate}, y, values_);
    buffers_[op.out] = std::move(xsa.out);
    const int64_t first = op.layer * Length() * config_.heads;
    std::copy(xsa.cos_sim.begin(), xsa.cos_sim.end(), answer_.xsa_cos_sim.begin() + first);
    std::copy(xsa.proj_frac.begin(), xsa.proj_frac.end(), answer_.xsa_proj_frac.begin() + first);
  }

  void operator()(const SwiGluOp& op) {
    buffers_[op.out] = kernels::reference::SwiGlu(buffers_[op.gate], buffers_[op.up]);
  }

  void operator()(const HeadOp& op) {
    answer_.logits = kernels::reference::Linear(buffers_[op.in], Weight(op.weight), {},
                                                Width(op.in), config_.vocab_size);
  }

  ReferenceAnswer Take() && { return std::move(answer_); }

 private:
  int64_t Length() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t Width(BufferId id) const { return model_.graph.buffers[id].width; }

  Values Weight(const std::string& name) const {
    const auto it = model_.checkpoint.tensors().find(name);
    SLUICE_CHECK(it != model_.checkpoint.tensors().end());
    Values values(it->second.elements());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = kernels::LoadAsFloat(it->second.data, it->second.dtype, static_cast<int64_t>(i));
    }
    return values;
  }

  void Rotate(Values& rows) const {
    const int64_t width = static_cast<int64_t>(rows.size()) / Length();
    for (int64_t offset = 0; offset < static_cast<int64_t>(rows.size());
         offset += config_.head_dim) {
      const std::span<double> head(rows.data() + offset, config_.head_dim);
      kernels::reference::Rotate(head, frequencies_, offset / width);
    }
  }

  const Model& model_;
  const ModelConfig& config_;
  std::span<const int32_t> tokens_;
  std::vector<int32_t> positions_;
  std::vector<Values> buffers_;
  Values keys_, values_;  // of the layer at hand
  Values frequencies_;
  kernels::reference::AttentionShape shape_;
  ReferenceAnswer answer_;
};

}  // namespace

ReferenceAnswer RunReference(const Model& model, std::span<const int32_t> tokens) {
  Execution execution(model, tokens);
  for (const GraphOp& op : model.graph.ops) std::visit(execution, op);
  return std::move(execution).Take();
}

}  // namespace sluice::testing
