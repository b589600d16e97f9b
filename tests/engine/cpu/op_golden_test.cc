// Compares the reference and the CPU kernels with the single operations of
// tests/goldens/ops.safetensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/rope.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/sample.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/linear.h"
#include "kernels/reference/norm.h"
#include "kernels/reference/rope.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/golden_file.h"

namespace sluice::testing {
namespace {

namespace reference = kernels::reference;
using kernels::XsaForm;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

constexpr double kReferenceTolerance = 2e-7;  // the golden outputs are rounded to float
constexpr double kKernelTolerance = 2e-6;

Doubles Widen(const Floats& x) { return {x.begin(), x.end()}; }

// Succeeds if |a - e| <= tolerance * max(|e|, floor) for all values.
template <typename T>
::testing::AssertionResult Near(const std::vector<T>& actual, const Floats& expected,
                                double tolerance, double floor = 1) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure() << actual.size() << " values, not " << expected.size();
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    const double allowed = tolerance * std::max<double>(std::abs(expected[i]), floor);
    if (std::abs(double{actual[i]} - double{expected[i]}) <= allowed) continue;
    return ::testing::AssertionFailure()
           << "value " << i << " is " << actual[i] << ", must be " << expected[i];
  }
  return ::testing::AssertionSuccess();
}

class OpGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  Floats Get(const std::string& tensor) const { return file_.Floats(case_ + tensor); }
  int64_t Size(const std::string& tensor, int dimension) const {
    return file_.Shape(case_ + tensor).at(dimension);
  }

  GoldenFile file_{GoldenPath("ops.safetensors")};
  std::string case_;  // "op.case."
  kernels::ThreadPool pool_{2};
  kernels::Context context_{*kernels::ParseProfile(GetParam()), &pool_};
};

TEST_P(OpGoldenTest, RmsNorm) {
  for (const char* name : {"rms_norm.plain.", "rms_norm.odd_width.", "rms_norm.small."}) {
    SCOPED_TRACE(case_ = name);
    const Floats x = Get("x"), weight = Get("weight"), expected = Get("out");
    const float eps = Get("eps")[0];
    const int64_t rows = Size("x", 0), dim = Size("x", 1);
    EXPECT_TRUE(Near(reference::RmsNorm(Widen(x), Widen(weight), eps, dim), expected,
                     kReferenceTolerance, 0));
    Floats out(x.size());
    kernels::RmsNorm(context_, x.data(), weight.data(), eps, rows, dim, out.data());
    EXPECT_TRUE(Near(out, expected, kKernelTolerance, 0));
  }
}

TEST_P(OpGoldenTest, Rope) {
  for (const char* name : {"rope.plain.", "rope.llama3."}) {
    SCOPED_TRACE(case_ = name);
    const Floats x = Get("x"), expected = Get("out");  // [rows, heads, head_dim]
    const std::vector<int32_t> positions = file_.Ints(case_ + "positions");
    const auto rows = static_cast<int64_t>(positions.size());
    const int64_t heads = Size("x", 1), head_dim = Size("x", 2);
    RopeConfig rope{.theta = Get("theta")[0], .llama3 = {}};
    std::optional<reference::Llama3Scaling> scaling;
    if (file_.Has(case_ + "factor")) {
      rope.llama3 = {Get("factor")[0], Get("low_freq_factor")[0], Get("high_freq_factor")[0],
                     static_cast<int64_t>(Get("original_max_position_embeddings")[0])};
      scaling = {rope.llama3->factor, rope.llama3->low_freq_factor, rope.llama3->high_freq_factor,
                 static_cast<double>(rope.llama3->original_max_positions)};
    }
    const Doubles frequencies = RopeFrequencies(rope, head_dim);
    EXPECT_TRUE(Near(frequencies, Get("inv_freq"), kReferenceTolerance, 0));
    const Doubles stated = reference::InverseFrequencies(head_dim, rope.theta, scaling);
    EXPECT_TRUE(Near(stated, Get("inv_freq"), kReferenceTolerance, 0));
    Doubles rotated = Widen(x);
    for (int64_t i = 0; i < rows * heads; ++i) {
      reference::Rotate({rotated.data() + i * head_dim, static_cast<size_t>(head_dim)}, stated,
                        positions[i / heads]);
    }
    EXPECT_TRUE(Near(rotated, expected, kReferenceTolerance));

    Floats cos, sin;
    for (int32_t p = 0; p <= *std::max_element(positions.begin(), positions.end()); ++p) {
      for (double f : frequencies) cos.push_back(static_cast<float>(std::cos(p * f)));
      for (double f : frequencies) sin.push_back(static_cast<float>(std::sin(p * f)));
    }
    std::vector<int32_t> slots(rows);
    for (int64_t r = 0; r < rows; ++r) slots[r] = static_cast<int32_t>(r);
    const auto dim = static_cast<int32_t>(head_dim);
    Floats k(heads * head_dim * kernels::kPageTokens), v(k.size()), q = x;
    kernels::RopeAndStore(context_, {cos.data(), sin.data(), dim}, positions.data(), slots.data(),
                          rows, static_cast<int32_t>(heads), q.data(), x.data(), x.data(),
                          {k.data(), v.data(), static_cast<int32_t>(heads), dim});
    EXPECT_TRUE(Near(q, expected, kKernelTolerance));
  }
}

TEST_P(OpGoldenTest, PositionWise) {
  for (const char* name :
       {"position_wise.no_bias.", "position_wise.bias_e.", "position_wise.bias_le.",
        "position_wise.odd_sizes.", "position_wise.single."}) {
    SCOPED_TRACE(case_ = name);
    const Floats x = Get("x"), w = Get("w"), expected = Get("out");  // [B,L,D], [L,D,E], [B,L,E]
    const Floats bias = file_.Has(case_ + "bias") ? Get("bias") : Floats();
    const int64_t batch = Size("x", 0), length = Size("x", 1), in = Size("x", 2),
                  out_width = Size("w", 2);
    const bool position_bias = !bias.empty() && file_.Shape(case_ + "bias").size() == 2;
    std::vector<int32_t> positions;
    for (int64_t r = 0; r < batch * length; ++r) {
      positions.push_back(static_cast<int32_t>(r % length));
    }
    EXPECT_TRUE(Near(reference::PositionWise(Widen(x), positions, Widen(w), Widen(bias),
                                             position_bias, in, out_width),
                     expected, kReferenceTolerance));

    // The kernel takes rows sorted by position, then by sequence; its output is sorted back.
    Floats sorted(x.size()), out(expected.size()), restored(expected.size());
    std::vector<kernels::RowGroup> groups;
    for (int64_t l = 0; l < length; ++l) {
      groups.push_back(
          {static_cast<int32_t>(l), static_cast<int32_t>(l * batch), static_cast<int32_t>(batch)});
      for (int64_t b = 0; b < batch; ++b) {
        std::copy_n(&x[(b * length + l) * in], in, &sorted[(l * batch + b) * in]);
      }
    }
    const auto packed = kernels::PackedWeights::Pack(
        context_, {w.data(), kernels::DType::kF32, length, in, out_width, false});
    kernels::GroupedGemm(context_, packed, groups,
                         {sorted.data(), in, bias.empty() ? nullptr : bias.data(),
                          position_bias ? out_width : 0, out.data(), out_width, false});
    for (int64_t r = 0; r < batch * length; ++r) {
      std::copy_n(&out[(r % length * batch + r / length) * out_width], out_width,
                  &restored[r * out_width]);
    }
    EXPECT_TRUE(Near(restored, expected, kKernelTolerance));
  }
}

// The KV pages of one sequence with `heads` heads, whose keys are stored without rotation.
struct Pages {
  Pages(const kernels::Context& context, const Floats& keys, const Floats& values, int64_t heads,
        int64_t head_dim)
      : length(static_cast<int32_t>(static_cast<int64_t>(keys.size()) / (heads * head_dim))),
        k((length / kernels::kPageTokens + 1) * kernels::kPageTokens * heads * head_dim, NAN),
        v(k.size(), NAN),
        layer{k.data(), v.data(), static_cast<int32_t>(heads), static_cast<int32_t>(head_dim)} {
    std::vector<int32_t> positions;
    for (int32_t p = 0; p < length; ++p) {
      positions.push_back(p);
      if (p % kernels::kPageTokens == 0) ids.push_back(p / kernels::kPageTokens);
    }
    Floats unused(keys.size());
    kernels::RopeAndStore(context, {nullptr, nullptr, 0}, positions.data(), positions.data(),
                          length, static_cast<int32_t>(heads), unused.data(), keys.data(),
                          values.data(), layer);
  }

  int32_t length;
  Floats k, v;
  kernels::KvLayer layer;
  std::vector<int32_t> ids;
};

// Computes the attention of the last rows of one sequence.
void Attend(const kernels::Context& context, const Pages& pages, int32_t rows,
            const kernels::AttentionArgs& args) {
  std::vector<int32_t> row_ids;
  for (int32_t r = 0; r < rows; ++r) row_ids.push_back(r);
  const kernels::AttentionSequence sequence{pages.length - rows, rows, row_ids.data(),
                                            pages.ids.data()};
  Floats scratch(kernels::AttentionScratchFloats({}, {.q_heads = args.q_heads,
                                                      .kv_heads = pages.layer.kv_heads,
                                                      .head_dim = pages.layer.head_dim,
                                                      .max_context = pages.length,
                                                      .threads = context.pool->threads()}));
  kernels::Attention(context, args, pages.layer, {&sequence, 1}, pages.length, scratch.data());
}

TEST_P(OpGoldenTest, Attention) {
  for (const char* name : {"attention.mha.", "attention.gqa.", "attention.mqa.",
                           "attention.decode.", "attention.extend.", "attention.large_scores."}) {
    SCOPED_TRACE(case_ = name);
    const Floats q = Get("q"), k = Get("k"), v = Get("v"), expected = Get("out");
    const reference::AttentionShape shape{Size("q", 1), Size("k", 1), Size("q", 2)};
    const int32_t first = file_.Ints(case_ + "first_position")[0];
    const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
    EXPECT_TRUE(Near(reference::Attention(shape, Widen(q), Widen(k), Widen(v), first, true, scale),
                     expected, kReferenceTolerance));

    const Pages pages(context_, k, v, shape.kv_heads, shape.head_dim);
    const auto rows = static_cast<int32_t>(Size("q", 0));
    ASSERT_EQ(pages.length - rows, first);
    Floats out(q.size());
    Attend(context_, pages, rows,
           {.q = q.data(),
            .out = out.data(),
            .q_heads = static_cast<int32_t>(shape.q_heads),
            .scale = static_cast<float>(scale),
            .causal = true,
            .xsa = XsaForm::kOff,
            .xsa_eps = 1,
            .xsa_gate = nullptr,
            .cos_sim = nullptr,
            .proj_frac = nullptr});
    // With scores in the hundreds, the rounding error of a score is magnified by the exponential.
    const bool large = case_ == "attention.large_scores.";
    EXPECT_TRUE(Near(out, expected, large ? 1e-4 : kKernelTolerance));
  }
}

TEST_P(OpGoldenTest, Xsa) {
  for (const char* name : {"xsa.norm.", "xsa.norm_gate.", "xsa.norm_small_v.", "xsa.squared.",
                           "xsa.squared_gate.", "xsa.squared_small_v."}) {
    SCOPED_TRACE(case_ = name);
    const Floats y = Get("y"), v = Get("v"), expected = Get("out");
    const reference::AttentionShape shape{Size("y", 1), Size("v", 1), Size("y", 2)};
    const XsaForm form = case_.starts_with("xsa.norm") ? XsaForm::kNorm : XsaForm::kSquared;
    const float eps = Get("eps")[0];
    Floats gate(shape.q_heads, 1);
    if (file_.Has(case_ + "alpha")) gate = Get("alpha");
    Doubles exact_gate = Widen(gate);
    if (file_.Has(case_ + "alpha")) {
      for (double& g : exact_gate) g = std::tanh(g);
    }
    const auto stated = reference::ExcludeSelf(shape, {form, eps, exact_gate}, Widen(y), Widen(v));
    EXPECT_TRUE(Near(stated.out, expected, kReferenceTolerance));
    EXPECT_TRUE(Near(stated.cos_sim, Get("cos_sim"), kReferenceTolerance));
    EXPECT_TRUE(Near(stated.proj_frac, Get("proj_frac"), kReferenceTolerance));

    // The kernel excludes self at the end of attention, so attention must give y: each (row, head)
    // sees two keys, and a score of 200 makes its result the value of the first, which is y.
    Floats out(y.size()), cos_sim(Get("cos_sim").size()), proj_frac(cos_sim.size());
    const int64_t dim = shape.head_dim;
    for (size_t i = 0; i < cos_sim.size(); ++i) {
      const int64_t head = static_cast<int64_t>(i) % shape.q_heads;
      const int64_t row = static_cast<int64_t>(i) / shape.q_heads;
      const int64_t own = row * shape.kv_heads + head * shape.kv_heads / shape.q_heads;
      Floats keys(2 * dim), values(y.begin() + i * dim, y.begin() + (i + 1) * dim), query(dim);
      keys[0] = 1;
      query[0] = 200;
      values.insert(values.end(), v.begin() + own * dim, v.begin() + (own + 1) * dim);
      const auto g = static_cast<float>(exact_gate[head]);
      Attend(context_, Pages(context_, keys, values, 1, dim), 1,
             {.q = query.data(),
              .out = out.data() + i * dim,
              .q_heads = 1,
              .scale = 1,
              .causal = true,
              .xsa = form,
              .xsa_eps = eps,
              .xsa_gate = file_.Has(case_ + "alpha") ? &g : nullptr,
              .cos_sim = &cos_sim[i],
              .proj_frac = &proj_frac[i]});
    }
    EXPECT_TRUE(Near(out, expected, kKernelTolerance));
    EXPECT_TRUE(Near(cos_sim, Get("cos_sim"), kKernelTolerance));
    EXPECT_TRUE(Near(proj_frac, Get("proj_frac"), kKernelTolerance));
  }
}

TEST_P(OpGoldenTest, SwiGlu) {
  for (const char* name : {"swiglu.plain.", "silu.plain."}) {
    SCOPED_TRACE(case_ = name);
    const bool plain = case_ == "silu.plain.";
    const Floats gate = Get(plain ? "x" : "gate"), expected = Get("out");
    const Floats up = plain ? Floats(gate.size(), 1) : Get("up");
    EXPECT_TRUE(Near(reference::SwiGlu(Widen(gate), Widen(up)), expected, kReferenceTolerance));
    Floats out(gate.size());
    kernels::Activate(context_, Activation::kSilu, gate.data(), plain ? nullptr : up.data(), 1,
                      static_cast<int64_t>(gate.size()), out.data());
    EXPECT_TRUE(Near(out, expected, kKernelTolerance));
  }
}

TEST_P(OpGoldenTest, LogSoftmax) {
  case_ = "log_softmax.plain.";
  const Floats x = Get("x"), expected = Get("out");
  const int64_t rows = Size("x", 0), width = Size("x", 1);
  for (int64_t r = 0; r < rows; ++r) {
    const Floats row(x.begin() + r * width, x.begin() + (r + 1) * width);
    const Floats out(expected.begin() + r * width, expected.begin() + (r + 1) * width);
    EXPECT_TRUE(Near(reference::LogSoftmax(Widen(row)), out, kReferenceTolerance)) << r;
    const double log_sum = kernels::LogSumExp(context_.profile, row.data(), width);
    Floats actual;
    for (float logit : row) actual.push_back(static_cast<float>(logit - log_sum));
    EXPECT_TRUE(Near(actual, out, kKernelTolerance)) << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Profiles, OpGoldenTest, ::testing::ValuesIn(SupportedProfiles()),
                         [](const auto& test) { return TestName(test.param); });

}  // namespace
}  // namespace sluice::testing
