#include "tests/support/reference_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"
#include "engine/model/relative_bias.h"
#include "engine/model/rope.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/linear.h"
#include "kernels/reference/norm.h"
#include "kernels/reference/rope.h"
#include "kernels/reference/route.h"

namespace sluice::testing {
namespace {

using kernels::XsaForm;
using Values = std::vector<double>;

// Executes the ops; has one overload for each kind of op.
class Execution {
 public:
  Execution(const Model& model, std::span<const int32_t> tokens, int32_t first_position,
            std::span<const float> inputs, std::span<const int32_t> types)
      : model_(model),
        config_(model.config),
        tokens_(tokens),
        inputs_(inputs),
        types_(types),
        positions_(tokens.size()),
        buffers_(model.graph.buffers.size()),
        shape_{config_.heads, config_.kv_heads, config_.head_dim} {
    std::iota(positions_.begin(), positions_.end(), first_position);
    entries_ = positions_;
    if (config_.padding_token >= 0) {
      for (int64_t r = 0; r < Length(); ++r) {
        const auto padding = std::count(tokens.begin(), tokens.begin() + r, config_.padding_token);
        entries_[r] = tokens[r] == config_.padding_token ? 0 : 1 + positions_[r] - padding;
      }
    }
    answer_.xsa_cos_sim.assign(config_.layers * Length() * config_.heads, 0);
    answer_.xsa_proj_frac = answer_.xsa_cos_sim;
    for (size_t b = 0; b < buffers_.size(); ++b) {
      const GraphBuffer& buffer = model_.graph.buffers[b];
      buffers_[b].assign(Length() * buffer.rows * buffer.width, 0);
    }
  }

  void operator()(const EmbedOp& op) {
    const int64_t width = Width(op.out);
    const Values table = Weight(op.table);
    Values& out = buffers_[op.out];
    for (int64_t r = 0; r < Length(); ++r) {
      const int64_t entry = op.index == EmbedIndex::kToken      ? tokens_[r]
                            : op.index == EmbedIndex::kPosition ? entries_[r]
                            : types_.empty()                    ? 0
                                                                : types_[r];
      if (entry < 0) continue;
      for (int64_t d = 0; d < width; ++d) {
        double& value = out[r * width + d];
        value = (op.accumulate ? value : 0) + op.scale * table[entry * width + d];
      }
    }
  }

  void operator()(const InputOp& op) {
    Values& out = buffers_[op.out];
    for (int64_t r = 0; r < Length(); ++r) {
      for (int64_t d = 0; d < op.width; ++d) {
        out[r * op.width + d] = tokens_[r] < 0 ? inputs_[r * op.width + d] : 0;
      }
    }
  }

  void operator()(const NormOp& op) {
    Values weight = Weight(op.weight);
    for (double& value : weight) value += op.weight_offset;
    Values out;
    switch (op.kind) {
      case NormKind::kRms:
        out = kernels::reference::RmsNorm(buffers_[op.in], weight, op.eps, op.width);
        break;
      case NormKind::kLayer:
        out = kernels::reference::LayerNorm(buffers_[op.in], weight, Weight(op.bias), op.eps,
                                            op.width);
        break;
    }
    for (double& value : out) value *= op.scale;
    buffers_[op.out] = std::move(out);
  }

  void operator()(const LinearOp& op) {
    const int64_t in = Width(op.in);
    const int64_t out = Width(op.out);
    const Values bias = Weight(op.bias);
    const std::span<const int32_t> matrix_of = op.position_wise() ? positions_ : routes_.experts;
    Values result =
        !op.one_matrix()
            ? kernels::reference::PositionWise(buffers_[op.in], matrix_of, Matrices(op, in, out),
                                               bias, op.bias_each, in, out)
            : kernels::reference::Linear(buffers_[op.in], OutIn(op, in, out),
                                         std::span(bias).first(bias.empty() ? 0 : out), in, out);
    if (op.accumulate) {
      std::transform(result.begin(), result.end(), buffers_[op.out].begin(), result.begin(),
                     std::plus<>());
    }
    buffers_[op.out] = std::move(result);
  }

  // The copies of rows are ordered by row, then by expert.
  void operator()(const RouteOp& op) {
    routes_ =
        kernels::reference::Route(buffers_[op.logits], Width(op.logits), op.chosen, op.softmax);
    const int64_t width = Width(op.in);
    for (int64_t copy = 0; copy < Length() * op.chosen; ++copy) {
      std::copy_n(buffers_[op.in].begin() + copy / op.chosen * width, width,
                  buffers_[op.out].begin() + copy * width);
    }
  }

  void operator()(const CombineOp& op) {
    const int64_t width = Width(op.out);
    const Values bias = Weight(op.bias);
    Values& out = buffers_[op.out];
    for (int64_t i = 0; i < Length() * width; ++i) {
      double sum = bias.empty() ? 0 : bias[i % width];
      for (int64_t c = i / width * op.chosen; c < (i / width + 1) * op.chosen; ++c) {
        sum += routes_.weights[c] * buffers_[op.in][c * width + i % width];
      }
      out[i] = (op.accumulate ? out[i] : 0) + sum;
    }
  }

  void operator()(const RopeStoreOp& op) {
    const RopeOf rope = FindRope(op, config_);
    Rotate(rope, buffers_[op.q]);
    keys_ = buffers_[op.k];
    Rotate(rope, keys_);
    values_ = buffers_[op.v];
  }

  void operator()(const AttentionOp& op) {
    kernels::reference::AttentionShape shape = shape_;
    shape.window = op.window;
    shape.soft_cap = op.soft_cap;
    shape.silu_share = op.silu_share;
    std::vector<float> bias;
    if (op.biased()) {
      const Values table = Weight(op.relative_bias);
      bias = op.alibi ? AlibiByDistance(config_.heads, config_.max_positions)
                      : BiasByDistance(std::vector<float>(table.begin(), table.end()),
                                       config_.heads, op.relative_distance, config_.max_positions);
      shape.bias = bias;
      shape.bias_positions = config_.max_positions;
    }
    const Values keys = TableOf(op.relative, &RelativeTables::keys);
    const Values queries = TableOf(op.relative, &RelativeTables::queries);
    std::vector<int32_t> row_of;
    if (op.relative) {
      row_of = RelativeRows(op.relative->span, op.relative->max_distance, config_.max_positions);
    }
    shape.relative = {keys, queries, row_of};
    Values y = kernels::reference::Attention(shape, buffers_[op.q], keys_, values_, 0, op.causal,
                                             op.scale);
    if (!op.xsa) {
      buffers_[op.out] = std::move(y);
      return;
    }
    Values gate = Weight({op.xsa_gate, {}});
    for (double& g : gate) g = std::tanh(g);
    const bool norm = config_.xsa.form == XsaConfig::Form::kNorm;
    auto xsa = kernels::reference::ExcludeSelf(
        shape_, {norm ? XsaForm::kNorm : XsaForm::kSquared, config_.xsa.eps, gate}, y, values_);
    buffers_[op.out] = std::move(xsa.out);
    const int64_t first = op.layer * Length() * config_.heads;
    std::copy(xsa.cos_sim.begin(), xsa.cos_sim.end(), answer_.xsa_cos_sim.begin() + first);
    std::copy(xsa.proj_frac.begin(), xsa.proj_frac.end(), answer_.xsa_proj_frac.begin() + first);
  }

  void operator()(const ExchangeOp& op) {
    const int64_t block = Width(op.in) / op.tokens, length = Length();
    Values& out = buffers_[op.out];
    for (int64_t t = 0; t < length; ++t) {
      for (int64_t h = 0; h < op.tokens; ++h) {
        for (int64_t i = 0; i < block; ++i) {
          out[(t * op.tokens + h) * block + i] =
              h < length ? buffers_[op.in][(h * op.tokens + t) * block + i] : 0;
        }
      }
    }
  }

  void operator()(const ActivationOp& op) {
    Values out = buffers_[op.in];
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = kernels::reference::Activate(op.activation, out[i]) *
               (op.up == kNoBuffer ? 1 : buffers_[op.up][i]);
    }
    buffers_[op.out] = std::move(out);
  }

  void operator()(const MixOp& op) {
    const int64_t width = Width(op.out);
    Values out = buffers_[op.out];
    const Values a_weight = Weight(op.a_weight), b_weight = Weight(op.b_weight);
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t d = i % width / op.repeat;
      const auto at = [&](const Values& weight) {
        return weight.empty() ? 1 : weight[d % weight.size()];
      };
      out[i] = buffers_[op.a][i] * at(a_weight);
      if (op.b != kNoBuffer) out[i] += buffers_[op.b][i] * at(b_weight);
    }
    buffers_[op.out] = std::move(out);
  }

  void operator()(const HeadOp& op) {
    answer_.logits = kernels::reference::Linear(buffers_[op.in], Weight(op.weight), Weight(op.bias),
                                                Width(op.in), config_.vocab_size);
    if (op.soft_cap == 0) return;
    for (double& logit : answer_.logits) logit = op.soft_cap * std::tanh(logit / op.soft_cap);
  }

  ReferenceAnswer Take() && {
    answer_.output = std::move(buffers_[model_.graph.output]);
    return std::move(answer_);
  }

 private:
  int64_t Length() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t Width(BufferId id) const { return model_.graph.buffers[id].width; }

  // Returns the values from the part's first to the tensor's last, or only the values of the part's
  // runs, of a repeated run once. Returns an empty vector if the part is absent.
  Values Weight(const TensorPart& part) const {
    if (!part.present()) return {};
    const auto it = model_.checkpoint.tensors().find(part.name);
    SLUICE_CHECK(it != model_.checkpoint.tensors().end());
    Values values;
    const auto append = [&](int64_t first, int64_t end) {
      for (int64_t i = first; i < end; ++i) {
        values.push_back(kernels::LoadAsFloat(it->second.data, it->second.dtype, i));
      }
    };
    const int64_t end = it->second.elements();
    if (part.stride == 0) append(part.first, part.run == 0 ? end : part.first + part.run);
    for (int64_t i = 0; part.stride > 0 && part.first + i * part.stride < end; ++i) {
      append(part.FirstOfRun(i), part.FirstOfRun(i) + part.run);
    }
    return values;
  }

  // Returns a table of relative positions, [rows, heads, head_dim], or nothing.
  Values TableOf(const std::optional<RelativeTables>& relative,
                 std::optional<LinearOp> RelativeTables::*table) const {
    if (!relative || !((*relative).*table)) return {};
    const LinearOp& op = *((*relative).*table);
    Values rows = Weight(relative->positions);
    if (relative->norm) {
      const NormOp& norm = *relative->norm;
      Values weight = Weight(norm.weight);
      for (double& value : weight) value += norm.weight_offset;
      rows = norm.kind == NormKind::kRms
                 ? kernels::reference::RmsNorm(rows, weight, norm.eps, norm.width)
                 : kernels::reference::LayerNorm(rows, weight, Weight(norm.bias), norm.eps,
                                                 norm.width);
    }
    const int64_t in = config_.hidden_size, out = config_.heads * config_.head_dim;
    return kernels::reference::Linear(rows, OutIn(op, in, out), Weight(op.bias), in, out);
  }

  // Returns the matrices of a layer that has several, as [matrices, in, out].
  Values Matrices(const LinearOp& op, int64_t in, int64_t out) const {
    Values stored = Weight(op.weight);
    for (const std::string& name : op.more_matrices) {
      const Values next = Weight({name, op.weight.shape});
      stored.insert(stored.end(), next.begin(), next.end());
    }
    if (op.layout == MatrixLayout::kInOut) return stored;
    Values matrices(stored.size());
    for (size_t i = 0; i < stored.size(); ++i) {
      const size_t first = i / (in * out) * (in * out), n = i % (in * out) / in, k = i % in;
      matrices[first + k * out + n] = stored[i];
    }
    return matrices;
  }

  // Returns a dense layer's matrix as [out, in].
  Values OutIn(const LinearOp& op, int64_t in, int64_t out) const {
    Values stored = Weight(op.weight);
    if (op.layout == MatrixLayout::kOutIn) return stored;
    Values matrix;
    for (int64_t n = 0; n < out; ++n) {
      for (int64_t k = 0; k < in; ++k) matrix.push_back(stored[k * op.weight.shape[1] + n]);
    }
    return matrix;
  }

  void Rotate(const RopeOf& rope, Values& rows) const {
    if (rope.dims == 0) return;
    const Values frequencies = FrequenciesOf(*rope.rope, rope.dims);
    const int64_t width = static_cast<int64_t>(rows.size()) / Length();
    for (int64_t offset = 0; offset < static_cast<int64_t>(rows.size());
         offset += config_.head_dim) {
      const std::span<double> head(rows.data() + offset, config_.head_dim);
      kernels::reference::Rotate(head, frequencies, positions_[offset / width]);
      for (double& value : head.first(rope.dims)) value *= rope.rope->attention_factor;
    }
  }

  // Uses the engine's frequencies for scalings that only transformers goldens cover.
  static Values FrequenciesOf(const RopeConfig& rope, int64_t dims) {
    Values frequencies;
    if (rope.yarn || !rope.divisors.empty()) {
      frequencies = RopeFrequencies(rope, dims);
    } else {
      std::optional<kernels::reference::Llama3Scaling> scaling;
      if (rope.llama3) {
        scaling = {rope.llama3->factor, rope.llama3->low_freq_factor, rope.llama3->high_freq_factor,
                   static_cast<double>(rope.llama3->original_max_positions)};
      }
      frequencies = kernels::reference::InverseFrequencies(dims, rope.theta, scaling);
    }
    if (rope.reversed) {
      for (double& frequency : frequencies) frequency = -frequency;
    }
    return frequencies;
  }

  const Model& model_;
  const ModelConfig& config_;
  std::span<const int32_t> tokens_;
  std::span<const float> inputs_;
  std::span<const int32_t> types_;  // empty: all 0
  std::vector<int32_t> positions_;
  std::vector<int32_t> entries_;  // of the table of positions
  std::vector<Values> buffers_;
  Values keys_, values_;               // of the current layer
  kernels::reference::Routes routes_;  // of the latest RouteOp
  kernels::reference::AttentionShape shape_;
  ReferenceAnswer answer_;
};

}  // namespace

ReferenceAnswer RunReference(const Model& model, std::span<const int32_t> tokens,
                             int32_t first_position, std::span<const float> inputs,
                             std::span<const int32_t> types) {
  Execution execution(model, tokens, first_position, inputs, types);
  for (const GraphOp& op : model.graph.ops) std::visit(execution, op);
  return std::move(execution).Take();
}

}  // namespace sluice::testing
