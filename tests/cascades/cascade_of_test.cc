#include "cascades/cascade_of.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/ceil_div.h"
#include "cascades/einsum/analysis.h"
#include "cascades/einsum/egraph.h"
#include "cascades/einsum/extract.h"
#include "cascades/einsum/interpreter.h"
#include "cascades/einsum/lower.h"
#include "cascades/einsum/rewrites.h"
#include "cascades/einsum/term_pool.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/linear.h"
#include "kernels/reference/norm.h"
#include "kernels/reference/rope.h"

namespace sluice {
namespace {

namespace reference = kernels::reference;
using einsum::Cascade;
using einsum::NamedValues;
using Doubles = std::vector<double>;

// Computes cascades on random inputs and keeps the inputs.
class CascadeOfTest : public testing::Test {
 protected:
  CascadeOfTest() : seed_(std::random_device()()), random_(seed_) {
    config_.heads = 4;
    config_.kv_heads = 2;
    config_.head_dim = 6;
    config_.hidden_size = 5;
    config_.vocab_size = 7;
    config_.xsa.layers = {true};
  }

  BufferId AddBuffer(int64_t width) {
    graph_.buffers.push_back({"", width});
    return static_cast<BufferId>(graph_.buffers.size() - 1);
  }

  // Returns the result `name` of the op's cascade. Inputs that `inputs_` lacks are drawn.
  Doubles Compute(const GraphOp& op, const std::string& name = "Y") {
    return Interpret(CascadeOf(op, graph_, config_, {}), name);
  }

  // Returns the result of any cascade in the same way.
  Doubles Interpret(const Cascade& cascade, const std::string& name) {
    EXPECT_EQ(einsum::Check(cascade), absl::OkStatus());
    const einsum::Sizes sizes = SizesOf(config_, step_);
    std::map<std::string, int64_t> sizes_of_ranks;
    for (const einsum::Rank& rank : cascade.ranks) {
      sizes_of_ranks[rank.name] = einsum::SizeOf(rank, sizes).value();
    }
    NamedValues inputs;
    for (const einsum::Tensor& tensor : cascade.tensors) {
      einsum::Values values;
      int64_t count = 1;
      for (const std::string& rank : tensor.ranks) {
        values.shape.push_back(sizes_of_ranks[rank]);
        count *= sizes_of_ranks[rank];
      }
      if (IsResult(cascade, tensor.name)) continue;
      if (!inputs_.contains(tensor.name)) inputs_[tensor.name] = Draw(count);
      values.values = inputs_[tensor.name];
      EXPECT_EQ(std::ssize(values.values), count) << tensor.name;
      inputs[tensor.name] = std::move(values);
    }
    const auto results = einsum::Interpret(cascade, sizes, inputs);
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? results->at(name).values : Doubles();
  }

  // Returns the operations of the op's cascade.
  double FlopsOf(const GraphOp& op) const {
    const auto analysis =
        einsum::Analyze(CascadeOf(op, graph_, config_, {}), SizesOf(config_, step_));
    EXPECT_TRUE(analysis.ok()) << analysis.status();
    return analysis.ok() ? analysis->work.flops : 0;
  }

  Doubles Draw(int64_t count) {
    std::uniform_real_distribution<double> uniform(-2, 2);
    Doubles values(count);
    for (double& value : values) value = uniform(random_);
    return values;
  }

  void ExpectNear(const Doubles& got, const Doubles& expected, double tolerance = 1e-12) {
    ASSERT_EQ(got.size(), expected.size()) << "seed " << seed_;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], tolerance * (1 + std::abs(expected[i])))
          << "at " << i << ", seed " << seed_;
    }
  }

  ModelConfig config_;
  Graph graph_;
  StepSizes step_ = {.sequences = 3, .tokens = 2, .context = 5};
  std::map<std::string, Doubles> inputs_;

 private:
  static bool IsResult(const Cascade& cascade, const std::string& tensor) {
    const auto writes = [&](const einsum::Einsum& e) { return e.out.tensor == tensor; };
    return std::ranges::any_of(cascade.statements, [&](const einsum::Statement& statement) {
      const auto* const einsum = std::get_if<einsum::Einsum>(&statement);
      if (einsum != nullptr) return writes(*einsum);
      const auto& iteration = std::get<einsum::Iteration>(statement);
      return std::ranges::any_of(iteration.init, writes) ||
             std::ranges::any_of(iteration.body, writes);
    });
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
};

TEST_F(CascadeOfTest, NormsMatchTheReference) {
  const BufferId in = AddBuffer(12), out = AddBuffer(12);
  NormOp op = {.in = in,
               .out = out,
               .kind = NormKind::kRms,
               .weight = {"w", {4}},
               .bias = {},
               .eps = 0.125f,
               .width = 4,
               .scale = 1};
  Doubles got = Compute(op);
  ExpectNear(got, reference::RmsNorm(inputs_["X"], inputs_["W"], 0.125, 4));
  op.kind = NormKind::kLayer;
  op.bias = {"b", {4}};
  got = Compute(op);
  ExpectNear(got, reference::LayerNorm(inputs_["X"], inputs_["W"], inputs_["B"], 0.125, 4));
  op.weight_offset = 1;
  Doubles more = inputs_["W"];
  for (double& value : more) value += 1;
  ExpectNear(Compute(op), reference::LayerNorm(inputs_["X"], more, inputs_["B"], 0.125, 4));
  op.weight_offset = 0;
  op.scale = 0.5f;
  Doubles half = reference::LayerNorm(inputs_["X"], inputs_["W"], inputs_["B"], 0.125, 4);
  for (double& value : half) value /= 2;
  ExpectNear(Compute(op), half);
}

TEST_F(CascadeOfTest, LinearLayersMatchTheReference) {
  const BufferId in = AddBuffer(4), out = AddBuffer(3);
  LinearOp op = {.in = in,
                 .out = out,
                 .weight = {"w", {3, 4}},
                 .layout = MatrixLayout::kOutIn,
                 .bias = {"b", {3}},
                 .bias_each = false,
                 .accumulate = true};
  const Doubles got = Compute(op);
  Doubles transposed;
  for (int e = 0; e < 3; ++e) {
    for (int d = 0; d < 4; ++d) transposed.push_back(inputs_["W"][d * 3 + e]);
  }
  Doubles expected = reference::Linear(inputs_["X"], transposed, inputs_["B"], 4, 3);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += inputs_["R"][i];
  ExpectNear(got, expected);
}

TEST_F(CascadeOfTest, JoinedLayersAreTheColumnsOfOne) {
  const BufferId in = AddBuffer(4), out = AddBuffer(5);
  const LinearOp op = {.in = in,
                       .out = out,
                       .weight = {"w", {3, 4}},
                       .layout = MatrixLayout::kOutIn,
                       .bias = {"b", {3}},
                       .bias_each = false,
                       .accumulate = false,
                       .more = {{.weight = {"x", {2, 4}}, .bias = {"c", {2}}, .width = 2}}};
  const Doubles got = Compute(op);
  for (const auto& [first, width] : {std::pair<int, int>{0, 3}, {3, 2}}) {
    Doubles weight, part;
    for (int e = first; e < first + width; ++e) {
      for (int d = 0; d < 4; ++d) weight.push_back(inputs_["W"][d * 5 + e]);
    }
    for (int row = 0; row < 6; ++row) {
      for (int e = first; e < first + width; ++e) part.push_back(got[row * 5 + e]);
    }
    const Doubles bias(inputs_["B"].begin() + first, inputs_["B"].begin() + first + width);
    ExpectNear(part, reference::Linear(inputs_["X"], weight, bias, 4, width));
  }
}

TEST_F(CascadeOfTest, APositionWiseLayerIsTheEinsumOfItsDefinition) {
  const BufferId in = AddBuffer(4), out = AddBuffer(3);
  LinearOp op = {.in = in,
                 .out = out,
                 .weight = {"w", {2, 4, 3}},
                 .layout = MatrixLayout::kInOut,
                 .index = MatrixIndex::kPosition,
                 .matrices = 2,
                 .bias = {"b", {2, 3}},
                 .bias_each = true,
                 .accumulate = false};
  const Doubles got = Compute(op);
  Doubles expected = reference::PositionWiseEinsum(inputs_["X"], inputs_["W"], 3, 2, 4, 3);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += inputs_["B"][i % 6];
  ExpectNear(got, expected);
}

// The rows of the step choose 2 of 3 experts. The cascade has equal shares of rows.
TEST_F(CascadeOfTest, ExpertsAreProductsOfTheirRows) {
  config_.experts = {.count = 3, .chosen = 2, .width = 4, .layers = {true}};
  const BufferId in = AddBuffer(4), out = AddBuffer(5), logits = AddBuffer(3);
  const einsum::Sizes sizes = SizesOf(config_, step_);
  const int64_t experts = sizes.at("experts"), rows = sizes.at("expert_rows");
  EXPECT_EQ(experts, 3);
  EXPECT_EQ(rows, CeilDiv(sizes.at("rows") * 2, int64_t{3}));
  const Doubles got = Compute(LinearOp{.in = in,
                                       .out = out,
                                       .weight = {"w", {3, 4, 5}},
                                       .layout = MatrixLayout::kInOut,
                                       .index = MatrixIndex::kExpert,
                                       .matrices = 3,
                                       .bias = {},
                                       .bias_each = false,
                                       .accumulate = false});
  std::vector<int32_t> expert_of;
  for (int64_t i = 0; i < experts * rows; ++i) expert_of.push_back(static_cast<int32_t>(i / rows));
  ExpectNear(got, reference::PositionWise(inputs_["X"], expert_of, inputs_["W"], {}, false, 4, 5));

  inputs_.clear();
  const RouteOp route = {
      .logits = logits, .in = in, .out = in, .chosen = 2, .softmax = kernels::RouteSoftmax::kOfAll};
  const Doubles copies = Compute(route);
  const Doubles weights = Compute(route, "G");
  const int64_t all = sizes.at("rows");
  for (int64_t t = 0; t < all; ++t) {
    double sum = 0;
    for (int64_t x = 0; x < 3; ++x) sum += std::exp(inputs_["L"][t * 3 + x]);
    EXPECT_NEAR(weights[t * 3 + 1], std::exp(inputs_["L"][t * 3 + 1]) / sum, 1e-9);
    for (int64_t d = 0; d < 4; ++d) EXPECT_EQ(copies[(t * 2 + 1) * 4 + d], inputs_["X"][t * 4 + d]);
  }

  inputs_.clear();
  const Doubles mixed =
      Compute(CombineOp{.in = in, .out = in, .chosen = 2, .bias = {"b", {4}}, .accumulate = true});
  for (int64_t i = 0; i < all * 4; ++i) {
    const int64_t t = i / 4, d = i % 4;
    EXPECT_NEAR(mixed[i],
                inputs_["G"][t * 2] * inputs_["X"][t * 8 + d] +
                    inputs_["G"][t * 2 + 1] * inputs_["X"][t * 8 + 4 + d] + inputs_["B"][d] +
                    inputs_["R"][i],
                1e-9);
  }
}

TEST_F(CascadeOfTest, ActivationsMatchTheReference) {
  const BufferId in = AddBuffer(4), up = AddBuffer(4);
  for (const Activation activation : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                                      Activation::kRelu, Activation::kSquaredRelu}) {
    for (const BufferId with : {kNoBuffer, up}) {
      const Doubles got = Compute(ActivationOp{activation, in, with, in});
      Doubles expected;
      for (size_t i = 0; i < got.size(); ++i) {
        expected.push_back(reference::Activate(activation, inputs_["X"][i]) *
                           (with == up ? inputs_["U"][i] : 1));
      }
      SCOPED_TRACE(NameOf(activation));
      ExpectNear(got, expected);
    }
  }
}

// Heads of 6 features. All, the first 4 or none of them are rotated.
TEST_F(CascadeOfTest, RotationMatchesTheReference) {
  const BufferId q = AddBuffer(24), k = AddBuffer(12), v = AddBuffer(12);
  for (const int64_t rotated : {6, 4, 0}) {
    SCOPED_TRACE(rotated);
    config_.positions = rotated == 0 ? PositionKind::kNone : PositionKind::kRope;
    config_.rope.dims = rotated;
    const Doubles frequencies = reference::InverseFrequencies(rotated, 100, {});
    inputs_.clear();
    for (int64_t row = 0; rotated > 0 && row < 6; ++row) {
      for (const double frequency : frequencies) {
        inputs_["C"].push_back(std::cos(static_cast<double>(row) * frequency));
        inputs_["S"].push_back(std::sin(static_cast<double>(row) * frequency));
      }
    }
    const RopeStoreOp op{.layer = 0, .q = q, .k = k, .v = v};
    for (const auto& [x, heads] : std::map<std::string, int64_t>{{"Q", 4}, {"K", 2}}) {
      Doubles parts[3];
      if (rotated > 0) parts[0] = Compute(op, x + "1");
      if (rotated > 0) parts[1] = Compute(op, x + "2");
      if (rotated < 6) parts[2] = Compute(op, x + "3");
      Compute(op, "Z");  // draws the input if there is no part
      Doubles expected[3];
      Doubles rows = inputs_[x];
      for (int64_t head = 0; head < 6 * heads; ++head) {
        const std::span features = std::span(rows).subspan(head * 6, 6);
        if (rotated > 0) reference::Rotate(features, frequencies, head / heads);
        for (int64_t i = 0; i < 6; ++i) {
          const int64_t part = i < rotated / 2 ? 0 : i < rotated ? 1 : 2;
          expected[part].push_back(features[i]);
        }
      }
      for (int part = 0; part < 3; ++part) ExpectNear(parts[part], expected[part]);
    }
    ExpectNear(Compute(op, "Z"), inputs_["V"]);
  }
}

TEST_F(CascadeOfTest, AllFeaturesOfKeysAndValuesAreStored) {
  const BufferId q = AddBuffer(24), k = AddBuffer(12), v = AddBuffer(12);
  for (const int64_t rotated : {6, 4}) {
    config_.rope.dims = rotated;
    const auto analysis = einsum::Analyze(
        CascadeOf(RopeStoreOp{0, q, k, v}, graph_, config_, {.kv = {.bytes_per_value = 2}}),
        SizesOf(config_, step_));
    ASSERT_TRUE(analysis.ok()) << analysis.status();
    EXPECT_EQ(analysis->traffic.StoresOf(einsum::Home::kKv), 6 * (12 + 12) * 2);
    EXPECT_EQ(analysis->traffic.StoresOf(einsum::Home::kArena), 6 * 24 * 4);
  }
}

// Returns [sequences, tokens, heads, head_dim] for [sequences, heads, tokens, head_dim].
Doubles RowsFirst(const Doubles& values, int64_t tokens, int64_t heads, int64_t head_dim) {
  Doubles rows(values.size());
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    const int64_t d = i % head_dim, token = i / head_dim % tokens;
    const int64_t head = i / head_dim / tokens % heads, sequence = i / head_dim / tokens / heads;
    rows[((sequence * tokens + token) * heads + head) * head_dim + d] = values[i];
  }
  return rows;
}

// Takes sequence `b` of [sequences, ...].
Doubles Part(const Doubles& values, int64_t b, int64_t sequences) {
  const int64_t each = std::ssize(values) / sequences;
  return {values.begin() + b * each, values.begin() + (b + 1) * each};
}

TEST_F(CascadeOfTest, AttentionWithXsaMatchesTheReference) {
  const BufferId q = AddBuffer(24);
  const reference::AttentionShape shape = {4, 2, 6};
  for (const XsaConfig::Form form : {XsaConfig::Form::kNorm, XsaConfig::Form::kSquared}) {
    for (const bool causal : {true, false}) {
      // Without XSA, with it, and with a gate.
      for (const int xsa : {0, 1, 2}) {
        const bool gated = xsa == 2;
        config_.xsa.form = form;
        inputs_.clear();
        inputs_["V"] = Draw(3 * 5 * 2 * 6);
        for (int64_t b = 0; b < 3; ++b) {  // the values of the last two positions
          const Doubles v = Part(inputs_["V"], b, 3);
          inputs_["O"].insert(inputs_["O"].end(), v.end() - 2 * 2 * 6, v.end());
        }
        const Doubles got = Compute(AttentionOp{.layer = 0,
                                                .q = q,
                                                .out = q,
                                                .causal = causal,
                                                .scale = 1,
                                                .xsa = xsa > 0,
                                                .xsa_gate = gated ? "alpha" : ""});
        Doubles expected;
        for (int64_t b = 0; b < 3; ++b) {
          const Doubles y =
              reference::Attention(shape, Part(inputs_["Q"], b, 3), Part(inputs_["K"], b, 3),
                                   Part(inputs_["V"], b, 3), 3, causal, 1 / std::sqrt(6.0));
          const kernels::XsaForm reference_form =
              form == XsaConfig::Form::kNorm ? kernels::XsaForm::kNorm : kernels::XsaForm::kSquared;
          const Doubles z = reference::ExcludeSelf(shape,
                                                   {reference_form, 1e-18,
                                                    gated ? std::span<const double>(inputs_["W"])
                                                          : std::span<const double>()},
                                                   y, Part(inputs_["O"], b, 3))
                                .out;
          const Doubles& each = xsa > 0 ? z : y;
          expected.insert(expected.end(), each.begin(), each.end());
        }
        ExpectNear(RowsFirst(got, 2, 4, 6), expected, 1e-10);
      }
    }
  }
}

// The report of a step counts these products, too: each pair of a query and a key has head_dim
// more multiply-adds for each table.
TEST_F(CascadeOfTest, RelativePositionsMatchTheReferenceAndCountTheirProducts) {
  const BufferId q = AddBuffer(24);
  config_.kv_heads = config_.heads;
  config_.score_scale = 0.5f;
  step_ = {.sequences = 2, .tokens = 5, .context = 5};
  const LinearOp any = {.in = kNoBuffer,
                        .out = kNoBuffer,
                        .weight = {"table", {24, 5}},
                        .layout = MatrixLayout::kOutIn,
                        .bias = {},
                        .bias_each = false,
                        .accumulate = false};
  constexpr int64_t kRows = 9;
  const std::vector<int32_t> row_of = {8, 8, 7, 6, 5, 4, 3, 2, 1, 0};  // from distance -5 on
  AttentionOp op = {
      .layer = 0, .q = q, .out = q, .causal = false, .scale = 0.5f, .xsa = false, .xsa_gate = ""};
  const double plain = FlopsOf(op);
  for (const int tables : {1, 2, 3}) {
    inputs_.clear();
    op.relative = RelativeTables{.positions = {"positions", {kRows, 5}},
                                 .norm = std::nullopt,
                                 .keys = std::nullopt,
                                 .queries = std::nullopt,
                                 .span = 5,
                                 .max_distance = 0};
    if ((tables & 1) != 0) op.relative->keys = any;
    if ((tables & 2) != 0) op.relative->queries = any;
    const Doubles keys = Draw(kRows * 24), queries = Draw(kRows * 24);
    for (int64_t head = 0; head < 4; ++head) {
      for (int64_t row = 0; row < 5; ++row) {
        for (int64_t key = 0; key < 5; ++key) {
          const int64_t at = (row_of[5 + key - row] * 4 + head) * 6;
          inputs_["T"].insert(inputs_["T"].end(), &keys[at], &keys[at] + 6);
          inputs_["U"].insert(inputs_["U"].end(), &queries[at], &queries[at] + 6);
        }
      }
    }
    const Doubles got = Compute(op);
    reference::AttentionShape shape = {.q_heads = 4, .kv_heads = 4, .head_dim = 6};
    shape.relative.row_of = row_of;
    if ((tables & 1) != 0) shape.relative.keys = keys;
    if ((tables & 2) != 0) shape.relative.queries = queries;
    Doubles expected;
    for (int64_t b = 0; b < 2; ++b) {
      const Doubles y =
          reference::Attention(shape, Part(inputs_["Q"], b, 2), Part(inputs_["K"], b, 2),
                               Part(inputs_["V"], b, 2), 0, false, 0.5);
      expected.insert(expected.end(), y.begin(), y.end());
    }
    SCOPED_TRACE(tables);
    ExpectNear(RowsFirst(got, 5, 4, 6), expected, 1e-10);
    const double products = 2.0 * 2 * 4 * 5 * 5 * 6;  // of one table
    EXPECT_GE(FlopsOf(op), plain + (tables == 3 ? 2 : 1) * products);
  }
}

TEST_F(CascadeOfTest, WindowsSoftCapsAndBiasesMatchTheReference) {
  const BufferId q = AddBuffer(24);
  config_.score_scale = 0.5f;
  for (const bool causal : {true, false}) {
    for (const int64_t window : {0, 1, 3}) {
      inputs_.clear();
      const AttentionOp op = {.layer = 0,
                              .q = q,
                              .out = q,
                              .causal = causal,
                              .scale = 0.5f,
                              .window = window,
                              .soft_cap = 1.5f,
                              .relative_bias = {"bias", {8, 4}},
                              .xsa = false,
                              .xsa_gate = ""};
      // The bias of each head and distance, and the bias of each head, query and key.
      constexpr int64_t kPositions = 5, kRow = 2 * kPositions + 16;
      const Doubles drawn = Draw(4 * kRow);
      const std::vector<float> by_distance(drawn.begin(), drawn.end());
      for (int64_t head = 0; head < 4; ++head) {
        for (int64_t row = 0; row < 2; ++row) {
          for (int64_t key = 0; key < 5; ++key) {
            inputs_["R"].push_back(by_distance[head * kRow + kPositions + key - (3 + row)]);
          }
        }
      }
      const Doubles got = Compute(op);
      const reference::AttentionShape shape = {.q_heads = 4,
                                               .kv_heads = 2,
                                               .head_dim = 6,
                                               .window = window,
                                               .soft_cap = 1.5,
                                               .bias = by_distance,
                                               .bias_positions = kPositions};
      Doubles expected;
      for (int64_t b = 0; b < 3; ++b) {
        const Doubles y =
            reference::Attention(shape, Part(inputs_["Q"], b, 3), Part(inputs_["K"], b, 3),
                                 Part(inputs_["V"], b, 3), 3, causal, 0.5);
        expected.insert(expected.end(), y.begin(), y.end());
      }
      SCOPED_TRACE(testing::Message() << "window " << window << (causal ? ", causal" : ""));
      ExpectNear(RowsFirst(got, 2, 4, 6), expected, 1e-10);
    }
  }
}

TEST_F(CascadeOfTest, TheHeadEndsWithTheLogSumExp) {
  HeadOp op = {.in = AddBuffer(5), .weight = {"w", {7, 5}}, .bias = {"b", {7}}, .soft_cap = 0};
  for (const float cap : {0.0f, 3.0f}) {
    op.soft_cap = cap;
    const Doubles logits = Compute(op, "L"), sums = Compute(op);
    for (int64_t s = 0; s < 3; ++s) {
      for (int64_t v = 0; v < 7; ++v) {
        double logit = inputs_["B"][v];
        for (int64_t d = 0; d < 5; ++d) logit += inputs_["X"][s * 5 + d] * inputs_["W"][d * 7 + v];
        if (cap != 0) logit = cap * std::tanh(logit / cap);
        ASSERT_NEAR(logits[s * 7 + v], logit, 1e-12);
      }
      const auto row = std::span(logits).subspan(s * 7, 7);
      ASSERT_NEAR(sums[s], reference::LogSumExp(row), 1e-12);
      const Doubles log_softmax = reference::LogSoftmax(row);
      for (int64_t v = 0; v < 7; ++v) ASSERT_NEAR(row[v] - sums[s], log_softmax[v], 1e-12);
    }
  }
}

// Returns the results of a cascade without iterations as terms.
std::map<std::string, einsum::TermId> TermsOf(const Cascade& cascade, einsum::TermPool& pool) {
  for (const einsum::Rank& rank : cascade.ranks) pool.DeclareRank(rank);
  std::map<std::string, einsum::TermId> terms;
  for (const einsum::PlacedEinsum& each : einsum::AllEinsums(cascade)) {
    std::vector<einsum::TermId> in;
    for (const einsum::Access& access : each.einsum->in) {
      if (access.is_constant()) {
        in.push_back(pool.Constant(access.constant));
      } else if (const auto known = terms.find(access.tensor); known != terms.end()) {
        in.push_back(known->second);
      } else {
        in.push_back(
            pool.Input(*std::ranges::find(cascade.tensors, access.tensor, &einsum::Tensor::name)));
      }
    }
    einsum::TermId term = in.size() == 2 ? pool.Map(each.einsum->map, in[0], in[1]) : in[0];
    if (each.einsum->unary != einsum::Function::kNone) {
      term = pool.Unary(each.einsum->unary, term);
    }
    for (const einsum::Reduction& reduction : each.einsum->reduce) {
      term = pool.Reduce(reduction.op, reduction.rank, term);
    }
    terms[each.einsum->out.tensor] = term;
  }
  return terms;
}

// Over blocks of 2 of the 7 columns, the sum needs only the maximum of its own block. It therefore
// takes the same pass as the maximum of all columns.
TEST_F(CascadeOfTest, TheLogSumExpOfTheHeadTakesOnePassOverBlocksOfColumns) {
  const HeadOp op = {
      .in = AddBuffer(5), .weight = {"w", {7, 5}}, .bias = {"b", {7}}, .soft_cap = 3};
  const Doubles sums = Compute(op);
  const Cascade head = CascadeOf(op, graph_, config_, {});
  EXPECT_EQ(einsum::Passes(head, "vocab"), 2);
  einsum::TermPool pool;
  einsum::EGraph graph(&pool);
  const einsum::TermId root = graph.AddTerm(TermsOf(head, pool).at("Y"));
  const auto rules = einsum::SoftmaxRules({{"v", "c", "j", 2}});
  std::vector<einsum::Rule> all = einsum::SplitRules();
  all.insert(all.end(), rules.begin(), rules.end());
  EXPECT_EQ(graph.Saturate(all, {}).outcome, einsum::Outcome::kSaturated);
  std::map<int, int> variants_of_passes;
  for (const einsum::TermId variant : einsum::VariantsOf(graph, pool, root, 1000).terms) {
    const Cascade cascade = einsum::Lower(pool, {{"Y", variant}});
    ++variants_of_passes[einsum::Passes(cascade, "vocab")];
    ExpectNear(Interpret(cascade, "Y"), sums);
  }
  EXPECT_GT(variants_of_passes[1], 0);
  EXPECT_GT(variants_of_passes[2], 0);
}

TEST_F(CascadeOfTest, EmbeddingsInputsAndMixesAreSums) {
  const BufferId a = AddBuffer(6), b = AddBuffer(6);
  Doubles got = Compute(EmbedOp{{"t", {9, 6}}, EmbedIndex::kToken, a, true, 0.5f});
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_DOUBLE_EQ(got[i], inputs_["X"][i] + 0.5 * inputs_["T"][i]);
  }
  inputs_.clear();
  got = Compute(EmbedOp{{"t", {9, 6}}, EmbedIndex::kToken, a, false, 1});
  EXPECT_EQ(got, inputs_["T"]);
  got = Compute(InputOp{6, a});
  EXPECT_EQ(got, inputs_["X"]);
  inputs_.clear();
  got = Compute(ExchangeOp{.in = a, .out = b, .tokens = 2});
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t sequence = i / 12, row = i / 6 % 2, block = i / 3 % 2;
    ASSERT_EQ(got[i], inputs_["X"][sequence * 12 + block * 6 + row * 3 + i % 3]);
  }
  inputs_.clear();
  got =
      Compute(MixOp{.a = a, .b = b, .out = a, .a_weight = {"v", {2}}, .b_weight = {}, .repeat = 3});
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_DOUBLE_EQ(got[i], inputs_["A"][i] * inputs_["V"][i / 3 % 2] + inputs_["B"][i]);
  }
}

}  // namespace
}  // namespace sluice
