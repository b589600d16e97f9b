// Models whose projections are multiplied in int8. Each projection has the bits of the reference in
// integers, no matter which op quantised its rows. Stored checkpoints give the same bits as
// quantising on load.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/cpu/cpu_model.h"
#include "engine/cpu/int8_layout.h"
#include "kernels/cpu/quantized_rows.h"
#include "kernels/reference/int8.h"
#include "tests/engine/cpu/int8_models.h"
#include "tests/engine/cpu/projections.h"
#include "tests/engine/cpu/runner.h"
#include "tests/engine/cpu/stored_layers.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/temporary_directory.h"

namespace sluice::testing {
namespace {

using kernels::reference::Int8Product;
using kernels::reference::Quantize;
using ::testing::HasSubstr;

class Int8ModelTest : public ::testing::TestWithParam<std::string> {};

TEST_P(Int8ModelTest, EveryProjectionHasTheBitsOfTheReference) {
  for (const auto& [order, gated] :
       {std::pair{NormOrder::kPre, true}, {NormOrder::kPost, false}, {NormOrder::kQuery, false}}) {
    SCOPED_TRACE(std::string(NameOf(order)));
    const auto model = RandomModel(Int8Config(order, gated), 5, kernels::DType::kBF16);
    const int projections = CheckProjections(
        model, GetParam(),
        [&](const LinearOp& op, int64_t position, int64_t col, std::span<const float> x) {
          return Int8Product(Quantize(x), Quantize(ColumnOf(*model, op, position, col)));
        });
    EXPECT_EQ(projections, 2 * (gated ? 7 : 6));
  }
}

TEST_P(Int8ModelTest, EveryProductOfExpertsHasTheBitsOfTheReference) {
  const auto model = RandomModel(Int8ExpertsConfig(), 5, kernels::DType::kBF16);
  const int projections = CheckProjections(
      model, GetParam(),
      [&](const LinearOp& op, int64_t matrix, int64_t col, std::span<const float> x) {
        return Int8Product(Quantize(x), Quantize(ColumnOf(*model, op, matrix, col)));
      });
  EXPECT_EQ(projections, 2 * 7);
}

TEST(Int8ModelErrors, NameTheTensor) {
  const auto model = RandomModel(TinyConfig(1), 8, kernels::DType::kBF16);
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  const auto error = [&](const std::function<void(std::vector<TensorBytes>&)>& change) {
    const TemporaryDirectory directory;
    WriteTestFile(directory.File("config.json"), ConfigJson(TinyConfig(1)));
    WriteStored(*model, directory.path(), change);
    return LoadStatus(directory.path());
  };
  EXPECT_EQ(error(nullptr), "OK");
  EXPECT_THAT(error([&](auto& tensors) { Remove(tensors, q + "_scale"); }),
              HasSubstr("tensor " + q + "_scale is missing"));
  EXPECT_THAT(error([&](auto& tensors) {
                Named(tensors, q + "_scale").shape = {1, 32};
              }),
              HasSubstr("tensor " + q + "_scale has shape [1, 32], must be [32, 1]"));
  EXPECT_THAT(error([&](auto& tensors) {
                Named(tensors, q).shape = {16, 64};
              }),
              HasSubstr("tensor " + q + " has shape [16, 64], must be [32, 32]"));
  EXPECT_THAT(error([&](auto& tensors) {
                TensorBytes& norm = Named(tensors, "model.norm.weight");
                norm.dtype = "I8";
                norm.data.resize(norm.data.size() / 2);
              }),
              HasSubstr("tensor model.norm.weight has dtype I8, must be F32, F16 or BF16"));
}

TEST(QuantizationPlan, RowsAreQuantisedWhereTheyAreWrittenAndOnceForAllLayersThatReadThem) {
  const auto model = RandomModel(Int8Config(NormOrder::kPre, true), 1);
  const std::vector<RowQuantization> plan = QuantizationOfOps(*model);
  ASSERT_EQ(plan.size(), model->graph.ops.size());
  int norms = 0, layers = 0, activations = 0;
  for (size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].weights == Quantization::kNone) continue;
    EXPECT_EQ(plan[i].weights, Quantization::kInt8);
    const GraphOp& op = model->graph.ops[i];
    norms += std::holds_alternative<NormOp>(op);
    activations += std::holds_alternative<ActivationOp>(op);
    layers += std::holds_alternative<LinearOp>(op);
  }
  EXPECT_EQ(norms, 4);        // two of each layer, whose rows q, k and v, or gate and up, read
  EXPECT_EQ(activations, 2);  // for down
  EXPECT_EQ(layers, 2);       // o, whose rows attention writes
  const kernels::Profile profile = kernels::BestProfile();
  EXPECT_EQ(QuantizedRowBytes(*model, profile, 9),
            kernels::QuantizedRows::Bytes(profile, 9, model->config.intermediate_size,
                                          /*sums=*/false));
}

TEST(QuantizationPlan, RowsThatAnOpChangedAreQuantisedAgain) {
  Model model;
  model.config.quantization.projections = Quantization::kInt8;
  model.graph.buffers = {{"x", 8}, {"y", 8}};
  const LinearOp linear = {.in = 0,
                           .out = 1,
                           .weight = {"w", {8, 8}},
                           .layout = MatrixLayout::kOutIn,
                           .bias = {},
                           .bias_each = false,
                           .accumulate = false};
  const MixOp mix = {.a = 0, .b = 1, .out = 0, .a_weight = {}, .b_weight = {}};
  model.graph.ops = {linear, linear, mix, linear};
  std::vector<Quantization> quantizes;
  for (const RowQuantization& of_op : QuantizationOfOps(model)) {
    quantizes.push_back(of_op.weights);
  }
  EXPECT_THAT(quantizes, ::testing::ElementsAre(Quantization::kInt8, Quantization::kNone,
                                                Quantization::kNone, Quantization::kInt8));
}

std::string Int8ProfileName(const ::testing::TestParamInfo<std::string>& param) {
  return TestName(param.param);
}
INSTANTIATE_TEST_SUITE_P(Profiles, Int8ModelTest, ::testing::ValuesIn(SupportedProfiles()),
                         Int8ProfileName);

}  // namespace
}  // namespace sluice::testing
