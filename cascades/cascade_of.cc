#include "cascades/cascade_of.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>
#include <vector>

#include "base/ceil_div.h"
#include "cascades/cascade_builder.h"
#include "cascades/einsum/attention_terms.h"
#include "cascades/einsum/lower.h"
#include "engine/expected_experts.h"
#include "engine/model/rope.h"

namespace sluice {
namespace {

using einsum::Function;
using einsum::Home;
using einsum::Op;

// Makes the cascades; one overload for each kind of op.
class CascadeMaker {
 public:
  CascadeMaker(const Graph& graph, const ModelConfig& config, const CascadeOptions& options)
      : graph_(graph), config_(config), options_(options) {}

  // Y = scale T (+ X), of the rows of the table that were chosen.
  einsum::Cascade operator()(const EmbedOp& op) const {
    CascadeBuilder out = Rows("embed", "d", Width(op.out));
    out.Tensor("T", {"t", "d"}, Home::kWeight, options_.weight_bytes);
    const bool scaled = op.scale != 1;
    if (scaled) out.Map("E[t,d]", "T[t,d]", Op::kMultiply, op.scale);
    const char* const row = scaled ? "E[t,d]" : "T[t,d]";
    if (op.accumulate) {
      out.Input("X", {"t", "d"}).Map("Y[t,d]", "X[t,d]", Op::kAdd, row);
    } else {
      out.Copy("Y[t,d]", row);
    }
    return std::move(out).Build("Y");
  }

  einsum::Cascade operator()(const InputOp& op) const {
    CascadeBuilder out = Rows("input", "d", op.width);
    out.Input("X", {"t", "d"}).Copy("Y[t,d]", "X[t,d]");
    return std::move(out).Build("Y");
  }

  einsum::Cascade operator()(const NormOp& op) const {
    const auto width = static_cast<double>(op.width);
    CascadeBuilder out = Rows(op.kind == NormKind::kRms ? "rms_norm" : "layer_norm", "d", op.width);
    out.Rank("n", {"", Width(op.in) / op.width}).Input("X", {"t", "n", "d"});
    std::string x = "X[t,n,d]";
    if (op.kind == NormKind::kLayer) {
      out.Reduce("S[t,n]", "d", Op::kAdd, x).Map("U[t,n]", "S[t,n]", Op::kDivide, width);
      out.Map("C[t,n,d]", x, Op::kSubtract, "U[t,n]");
      x = "C[t,n,d]";
    }
    out.Contract("Q[t,n]", "d", x, x).Map("M[t,n]", "Q[t,n]", Op::kDivide, width);
    out.Map("R[t,n]", "M[t,n]", Op::kAdd, double{op.eps}, Function::kSqrt);
    std::string y = out.Chain(x, Op::kDivide, "R[t,n]", "N[t,n,d]");
    if (op.weight.present()) {
      out.Tensor("W", {"d"}, Home::kWeight, options_.weight_bytes);
      const bool offset = op.weight_offset != 0;
      if (offset) out.Map("F[d]", "W[d]", Op::kAdd, double{op.weight_offset});
      y = out.Chain(y, Op::kMultiply, offset ? "F[d]" : "W[d]", "G[t,n,d]");
    }
    if (op.bias.present()) {
      out.Tensor("B", {"d"}, Home::kWeight, options_.weight_bytes);
      y = out.Chain(y, Op::kAdd, "B[d]", "H[t,n,d]");
    }
    if (op.scale != 1) y = out.Chain(y, Op::kMultiply, op.scale, "I[t,n,d]");
    out.Copy("Y[t,n,d]", y);
    return std::move(out).Build("Y");
  }

  // A position-wise weight has the rank of its rows' positions: l is free in both operands, which
  // makes it a batch rank of the product.
  einsum::Cascade operator()(const LinearOp& op) const {
    if (op.index == MatrixIndex::kExpert) return OfExperts(op);
    const bool by_position = op.position_wise();
    CascadeBuilder out(by_position ? "position_wise" : "linear");
    if (by_position) {
      out.Rank("b", {"sequences"}).Rank("l", {"tokens"});
    } else {
      out.Rank("t", {"rows"});
    }
    out.Rank("d", {"", Width(op.in)}).Rank("e", {"", Width(op.out)});
    const std::vector<std::string> row =
        by_position ? std::vector<std::string>{"b", "l"} : std::vector<std::string>{"t"};
    const std::string rows = by_position ? "b,l" : "t";
    const std::string w = by_position ? "W[l,d,e]" : "W[d,e]";
    out.Input("X", With(row, "d"));
    out.Tensor(
        "W",
        by_position ? std::vector<std::string>{"l", "d", "e"} : std::vector<std::string>{"d", "e"},
        Home::kWeight, options_.weight_bytes);
    std::string y = "P[" + rows + ",e]";
    out.Contract(y, "d", "X[" + rows + ",d]", w);
    if (op.bias.present()) {
      const bool each = op.bias_each;
      out.Tensor("B", each ? std::vector<std::string>{"l", "e"} : std::vector<std::string>{"e"},
                 Home::kWeight, options_.weight_bytes);
      y = out.Chain(y, Op::kAdd, each ? "B[l,e]" : "B[e]", "S[" + rows + ",e]");
    }
    if (op.accumulate) {
      out.Input("R", With(row, "e"));
      y = out.Chain(y, Op::kAdd, "R[" + rows + ",e]", "A[" + rows + ",e]");
    }
    out.Copy("Y[" + rows + ",e]", y);
    return std::move(out).Build("Y");
  }

  // The softmax of the logits, and the copies c of each row. The choice is left out.
  einsum::Cascade operator()(const RouteOp& op) const {
    CascadeBuilder out("route");
    out.Rank("t", {"rows"}).Rank("x", {"", Width(op.logits)});
    out.Rank("c", {"", op.chosen}).Rank("d", {"", Width(op.in)});
    out.Input("L", {"t", "x"}).Input("X", {"t", "d"});
    out.Reduce("M[t]", "x", Op::kMax, "L[t,x]");
    out.Map("E[t,x]", "L[t,x]", Op::kSubtract, "M[t]", Function::kExp);
    out.Reduce("S[t]", "x", Op::kAdd, "E[t,x]").Map("G[t,x]", "E[t,x]", Op::kDivide, "S[t]");
    out.Tensor("G", {"t", "x"}, Home::kArena, 4);
    out.Copy("Y[t,c,d]", "X[t,d]");
    return std::move(out).Build("Y");
  }

  // Y = sum over c of G X (+ B) (+ R)
  einsum::Cascade operator()(const CombineOp& op) const {
    CascadeBuilder out = Rows("combine", "d", Width(op.out));
    out.Rank("c", {"", op.chosen}).Input("G", {"t", "c"}).Input("X", {"t", "c", "d"});
    std::string y = "S[t,d]";
    out.Contract(y, "c", "G[t,c]", "X[t,c,d]");
    if (op.bias.present()) {
      out.Tensor("B", {"d"}, Home::kWeight, options_.weight_bytes);
      y = out.Chain(y, Op::kAdd, "B[d]", "H[t,d]");
    }
    if (op.accumulate) {
      out.Input("R", {"t", "d"});
      y = out.Chain(y, Op::kAdd, "R[t,d]", "A[t,d]");
    }
    out.Copy("Y[t,d]", y);
    return std::move(out).Build("Y");
  }

  // C and S are the cosines and sines of the rows' positions. Rotated keys and values are stored in
  // the pages. Without pages, values stay where they are.
  einsum::Cascade operator()(const RopeStoreOp& op) const {
    CascadeBuilder out("rope_store");
    out.Rank("t", {"rows"}).Rank("e", {"", config_.head_dim});
    out.Rank("h", {"", Width(op.q) / config_.head_dim});
    out.Rank("k", {"", Width(op.k) / config_.head_dim});
    const int64_t half = FindRope(op, config_).dims / 2;
    if (half > 0) {
      out.Rank("i", {"", half});
      out.Tensor("C", {"t", "i"}, Home::kWeight, 4).Tensor("S", {"t", "i"}, Home::kWeight, 4);
    }
    const int64_t rest = config_.head_dim - 2 * half;
    if (rest > 0) out.Rank("r", {"", rest});
    out.Input("Q", {"t", "h", "e"}).Input("K", {"t", "k", "e"});
    const einsum::KvPlace& kv = options_.kv;
    AddRotation("Q", "h", half, rest, {Home::kArena, 4}, &out);
    AddRotation("K", "k", half, rest, kv, &out);
    if (kv.home == Home::kKv) {
      out.Rank("v", {"", Width(op.v)}).Input("V", {"t", "v"});
      out.Tensor("Z", {"t", "v"}, kv.home, kv.bytes_per_value).Copy("Z[t,v]", "V[t,v]");
    }
    return std::move(out).Build();
  }

  einsum::Cascade operator()(const AttentionOp& op) const {
    einsum::TermPool pool;
    const einsum::TermId y = einsum::AttentionTerm(pool, AttentionShapeOf(op, config_, options_));
    return einsum::Lower(pool, {{"Y", y}}, "attention");
  }

  // Returns Y[l, n] = X[n, l] for the rows l of a sequence, each of blocks n of i values.
  einsum::Cascade operator()(const ExchangeOp& op) const {
    CascadeBuilder out("exchange");
    out.Rank("b", {"sequences"}).Rank("l", {"", op.tokens}).Rank("n", {"", op.tokens});
    out.Rank("i", {"", Width(op.in) / op.tokens});
    out.Input("X", {"b", "n", "l", "i"}).Copy("Y[b,l,n,i]", "X[b,n,l,i]");
    return std::move(out).Build("Y");
  }

  einsum::Cascade operator()(const ActivationOp& op) const {
    // A row of experts is several rows of the token.
    CascadeBuilder out = Rows("activation", "i", Width(op.in) * graph_.buffers[op.in].rows);
    out.Input("X", {"t", "i"});
    std::string y = "A[t,i]";
    switch (op.activation) {
      case Activation::kSilu:
        out.Apply("S[t,i]", Function::kSigmoid, "X[t,i]");
        out.Map(y, "X[t,i]", Op::kMultiply, "S[t,i]");
        break;
      case Activation::kGelu:
        out.Apply(y, Function::kGelu, "X[t,i]");
        break;
      case Activation::kGeluTanh:
        AddGeluTanh(&out, y);
        break;
      case Activation::kRelu:
        out.Apply(y, Function::kRelu, "X[t,i]");
        break;
      case Activation::kSquaredRelu:
        out.Apply("S[t,i]", Function::kRelu, "X[t,i]");
        out.Map(y, "S[t,i]", Op::kMultiply, "S[t,i]");
        break;
    }
    if (op.up != kNoBuffer) {
      out.Input("U", {"t", "i"});
      y = out.Chain(y, Op::kMultiply, "U[t,i]", "G[t,i]");
    }
    out.Copy("Y[t,i]", y);
    return std::move(out).Build("Y");
  }

  einsum::Cascade operator()(const MixOp& op) const {
    CascadeBuilder out("mix");
    out.Rank("t", {"rows"}).Rank("n", {"", Width(op.out) / op.repeat}).Rank("r", {"", op.repeat});
    const auto side = [&](const std::string& x, const std::string& w, const TensorPart& weight,
                          const std::string& product) {
      out.Input(x, {"t", "n", "r"});
      if (!weight.present()) return x + "[t,n,r]";
      out.Tensor(w, {"n"}, Home::kWeight, options_.weight_bytes);
      return out.Chain(x + "[t,n,r]", Op::kMultiply, w + "[n]", product + "[t,n,r]");
    };
    std::string y = side("A", "V", op.a_weight, "E");
    if (op.b != kNoBuffer) {
      const std::string b = side("B", "W", op.b_weight, "F");
      y = out.Chain(y, Op::kAdd, b, "S[t,n,r]");
    }
    out.Copy("Y[t,n,r]", y);
    return std::move(out).Build("Y");
  }

  // The logits and their log-sum-exp. The choice and the draw of tokens are left out.
  einsum::Cascade operator()(const HeadOp& op) const {
    CascadeBuilder out("head");
    out.Rank("s", {"sequences"}).Rank("d", {"hidden"}).Rank("v", {"vocab"});
    out.Input("X", {"s", "d"});
    out.Tensor("W", {"d", "v"}, Home::kWeight, options_.weight_bytes);
    std::string y = "P[s,v]";
    out.Contract(y, "d", "X[s,d]", "W[d,v]");
    if (op.bias.present()) {
      out.Tensor("B", {"v"}, Home::kWeight, options_.weight_bytes);
      y = out.Chain(y, Op::kAdd, "B[v]", "A[s,v]");
    }
    if (op.soft_cap != 0) {
      out.Map("C[s,v]", y, Op::kDivide, double{op.soft_cap}, Function::kTanh);
      y = out.Chain("C[s,v]", Op::kMultiply, double{op.soft_cap}, "D[s,v]");
    }
    out.Copy("L[s,v]", y).Tensor("L", {"s", "v"}, Home::kArena, 4);
    out.Reduce("M[s]", "v", Op::kMax, "L[s,v]");
    out.Map("E[s,v]", "L[s,v]", Op::kSubtract, "M[s]", Function::kExp);
    out.Reduce("S[s]", "v", Op::kAdd, "E[s,v]").Apply("G[s]", Function::kLog, "S[s]");
    out.Map("Y[s]", "M[s]", Op::kAdd, "G[s]");
    return std::move(out).Build("Y");
  }

 private:
  // Each expert x with rows has the rows r.
  einsum::Cascade OfExperts(const LinearOp& op) const {
    CascadeBuilder out("experts");
    out.Rank("x", {"experts"}).Rank("r", {"expert_rows"});
    out.Rank("d", {"", Width(op.in)}).Rank("e", {"", Width(op.out)});
    out.Input("X", {"x", "r", "d"});
    out.Tensor("W", {"x", "d", "e"}, Home::kWeight, options_.weight_bytes);
    out.Contract("Y[x,r,e]", "d", "X[x,r,d]", "W[x,d,e]");
    return std::move(out).Build("Y");
  }

  // y = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  static void AddGeluTanh(CascadeBuilder* out, const std::string& y) {
    constexpr double kCubic = 0.044715, kOuter = 0.79788456080286536;
    const std::string x = "X[t,i]";
    out->Map("Q[t,i]", x, Op::kMultiply, x).Map("C[t,i]", "Q[t,i]", Op::kMultiply, x);
    out->Map("D[t,i]", "C[t,i]", Op::kMultiply, kCubic).Map("E[t,i]", "D[t,i]", Op::kAdd, x);
    out->Map("T[t,i]", "E[t,i]", Op::kMultiply, kOuter, Function::kTanh);
    out->Map("V[t,i]", "T[t,i]", Op::kAdd, 1.0).Map("H[t,i]", "V[t,i]", Op::kMultiply, x);
    out->Map(y, "H[t,i]", Op::kMultiply, 0.5);
  }

  // Adds the heads `head` of x. X1 and X2 are the first and second halves of their rotated
  // features, which are rotated as pairs. X3 are the following features, which stay unchanged.
  static void AddRotation(const std::string& x, const std::string& head, int64_t half, int64_t rest,
                          const einsum::KvPlace& place, CascadeBuilder* out) {
    const auto at = [&](const std::string& name, const std::string& feature) {
      return name + "[t," + head + "," + feature + "]";
    };
    const auto result = [&](const std::string& name, const std::string& feature) {
      out->Tensor(x + name, {"t", head, feature}, place.home, place.bytes_per_value);
      return at(x + name, feature);
    };
    if (half > 0) {
      const std::string first = at(x, "i"), second = at(x, "i+" + std::to_string(half));
      out->Map(at(x + "A", "i"), first, Op::kMultiply, "C[t,i]");
      out->Map(at(x + "B", "i"), second, Op::kMultiply, "S[t,i]");
      out->Map(at(x + "D", "i"), second, Op::kMultiply, "C[t,i]");
      out->Map(at(x + "E", "i"), first, Op::kMultiply, "S[t,i]");
      out->Map(result("1", "i"), at(x + "A", "i"), Op::kSubtract, at(x + "B", "i"));
      out->Map(result("2", "i"), at(x + "D", "i"), Op::kAdd, at(x + "E", "i"));
    }
    if (rest > 0) out->Copy(result("3", "r"), at(x, "r+" + std::to_string(2 * half)));
  }

  // Returns a builder with the ranks of rows of `width` values.
  static CascadeBuilder Rows(std::string name, const std::string& rank, int64_t width) {
    CascadeBuilder out(std::move(name));
    out.Rank("t", {"rows"}).Rank(rank, {"", width});
    return out;
  }

  static std::vector<std::string> With(std::vector<std::string> ranks, const char* last) {
    ranks.emplace_back(last);
    return ranks;
  }

  int64_t Width(BufferId id) const { return graph_.buffers[id].width; }

  const Graph& graph_;
  const ModelConfig& config_;
  const CascadeOptions options_;
};

}  // namespace

einsum::Sizes SizesOf(const ModelConfig& config, const StepSizes& step) {
  const int64_t rows = step.sequences * step.tokens;
  const ExpertsConfig& of_model = config.experts;
  const auto experts =
      std::max<int64_t>(1, std::llround(ExpectedExperts({of_model.count, of_model.chosen}, rows)));
  return {{"experts", experts},
          {"expert_rows", std::max<int64_t>(1, CeilDiv(rows * of_model.chosen, experts))},
          {"sequences", step.sequences},
          {"tokens", step.tokens},
          {"rows", step.sequences * step.tokens},
          {"context", step.context},
          {"kv_heads", config.kv_heads},
          {"group", config.heads / config.kv_heads},
          {"head_dim", config.head_dim},
          {"hidden", config.hidden_size},
          {"vocab", config.vocab_size}};
}

einsum::KvPlace KvPlaceOnCpu(const ModelConfig& config) {
  if (!config.causal) return {Home::kArena, 4};
  const auto element = static_cast<double>(KvElementBytes(config.kv_dtype));
  if (config.kv_dtype != KvType::kInt8) return {Home::kKv, element};
  return {Home::kKv, element + sizeof(float) / static_cast<double>(config.head_dim)};
}

einsum::AttentionShape AttentionShapeOf(const AttentionOp& op, const ModelConfig& config,
                                        const CascadeOptions& options) {
  const double usual = 1 / std::sqrt(static_cast<double>(config.head_dim));
  einsum::AttentionShape shape = {.causal = op.causal,
                                  .window = op.window,
                                  .scale = config.score_scale > 0 ? op.scale : usual,
                                  .soft_cap = op.soft_cap,
                                  .bias = op.biased(),
                                  .relative_keys = op.relative && op.relative->keys,
                                  .relative_queries = op.relative && op.relative->queries,
                                  .silu_share = op.silu_share,
                                  .gate = !op.xsa_gate.empty(),
                                  .kv = options.kv};
  if (op.xsa) {
    shape.xsa = config.xsa.form == XsaConfig::Form::kNorm ? einsum::XsaForm::kNorm
                                                          : einsum::XsaForm::kSquared;
  }
  return shape;
}

einsum::Cascade CascadeOf(const GraphOp& op, const Graph& graph, const ModelConfig& config,
                          const CascadeOptions& options) {
  return std::visit(CascadeMaker(graph, config, options), op);
}

}  // namespace sluice
