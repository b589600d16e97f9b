#include "engine/cuda/lower_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/cuda/dense_shapes.h"
#include "engine/cuda/emulator/simt_device.h"
#include "engine/cuda/gated_layers.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::testing {
namespace {

using simt::SimtDense;

// A model lowered for a device whose library offers `kinds`.
class LowerToCudaTest : public ::testing::Test {
 protected:
  void Lower(const ModelConfig& config, std::vector<SimtDense> kinds,
             const AlgorithmTable* table = nullptr) {
    model_ = RandomModel(config, 3);
    lowered_ = {};
    weights_.reset();
    stream_.reset();
    device_ = simt::MakeSimtDevice({.dense = std::move(kinds)});
    stream_ = device_->CreateStream().value();
    weights_.emplace(*device_, *stream_);
    layers_.emplace(*device_, *stream_, table);
    auto lowered = LowerToCuda<float>(*model_, *weights_, &*layers_);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    lowered_ = *std::move(lowered);
  }
  // Returns the number of ops that were fused into another op's kernel. The head has no kernel in
  // the list.
  size_t Fused() const { return lowered_.graph.ops.size() - 1 - lowered_.ops.size(); }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<simt::SimtDevice> device_;
  std::unique_ptr<DeviceStream> stream_;
  std::optional<DeviceWeights> weights_;
  std::optional<DenseLayers> layers_;
  LoweredCudaModel<float> lowered_;
};

ModelConfig ConfigWith(Activation activation, bool gated = false) {
  ModelConfig config = TinySluiceConfig(2);
  config.activation = activation;
  config.gated_mlp = gated;
  return config;
}

// Each of the two layers has one kernel less.
TEST_F(LowerToCudaTest, OurProjectionAppliesTheActivationAfterIt) {
  for (const bool gated : {false, true}) {
    Lower(ConfigWith(Activation::kSilu, gated), {SimtDense::kVaries});
    EXPECT_EQ(Fused(), gated ? 0u : 2u) << "gates are joined if there is a library";
    Lower(ConfigWith(Activation::kSilu, gated), {SimtDense::kInvariant});
    EXPECT_EQ(Fused(), 0u) << "the library has no such, gated " << gated;
  }
  Lower(ConfigWith(Activation::kRelu, /*gated=*/true), {SimtDense::kInvariant});
  EXPECT_EQ(Fused(), 0u) << "nor one with a gate";
}

// Returns the number of ops that are fused into another op's kernel without a library.
template <typename T>
size_t FusedByOurKernels(const ModelConfig& config) {
  const auto model = RandomModel(config, 3);
  const auto device = simt::MakeSimtDevice();
  const auto stream = device->CreateStream().value();
  DeviceWeights weights(*device, *stream);
  const auto lowered = LowerToCuda<T>(*model, weights, nullptr);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  return lowered.ok() ? lowered->graph.ops.size() - 1 - lowered->ops.size() : 0;
}

// The three ops of a gated MLP become one if our kernels compute both layers in bfloat16 or int8.
TEST(LowerGatedTest, BothLayersOfAGatedMlpAreOneOp) {
  using kernels::cuda::BFloat16;
  ModelConfig config = ConfigWith(Activation::kSilu, /*gated=*/true);
  EXPECT_EQ(FusedByOurKernels<BFloat16>(config), 4u);
  EXPECT_EQ(FusedByOurKernels<float>(config), 2u) << "only the activation";
  config.quantization.projections = Quantization::kInt8;
  EXPECT_EQ(FusedByOurKernels<BFloat16>(config), 4u);
  EXPECT_EQ(FusedByOurKernels<float>(config), 4u);
}

TEST(LowerGatedTest, LayersThatMustWriteTheGateAreLoweredOneByOne) {
  const Graph graph = BuildGraph(ConfigWith(Activation::kSilu, /*gated=*/true));
  const auto find = [](const Graph& in) {
    for (size_t i = 0; i < in.ops.size(); ++i) {
      if (GatedLayersAt(in, i)) return i;
    }
    return in.ops.size();
  };
  const size_t at = find(graph);
  ASSERT_LT(at + 2, graph.ops.size());
  const auto none = [&](auto change, const char* what) {
    Graph changed = graph;
    for (size_t i = 0; i + 2 < changed.ops.size(); ++i) {
      if (GatedLayersAt(graph, i)) {
        change(std::get<LinearOp>(changed.ops[i]), std::get<LinearOp>(changed.ops[i + 1]),
               std::get<ActivationOp>(changed.ops[i + 2]));
      }
    }
    EXPECT_EQ(find(changed), changed.ops.size()) << what;
  };
  none([](LinearOp& gate, LinearOp&, ActivationOp&) { gate.accumulate = true; }, "accumulates");
  none([](LinearOp&, LinearOp& up, ActivationOp&) { up.accumulate = true; }, "accumulates");
  none([](LinearOp& gate, LinearOp& up, ActivationOp&) { gate.in = up.out; }, "other rows");
  none([](LinearOp&, LinearOp& up, ActivationOp&) { up.matrices = 7; }, "other matrices");
  none([](LinearOp&, LinearOp&, ActivationOp& then) { then.out = then.in; }, "another output");
  none([](LinearOp&, LinearOp&, ActivationOp& then) { std::swap(then.in, then.up); }, "swapped");
  Graph read = graph;
  const BufferId gate = std::get<LinearOp>(graph.ops[at]).out;
  read.ops.insert(read.ops.end() - 1, MixOp{gate, kNoBuffer, gate, {}, {}});
  EXPECT_EQ(find(read), read.ops.size()) << "another op reads the gate";
}

TEST_F(LowerToCudaTest, TheLibrarysLayerAppliesAnActivationThatPassesTheTrial) {
  for (const Activation activation : {Activation::kRelu, Activation::kGeluTanh}) {
    Lower(ConfigWith(activation), {SimtDense::kInvariant});
    EXPECT_EQ(Fused(), 2u);
    for (const SimtDense wrong : {SimtDense::kWrongFunction, SimtDense::kDropsNaN}) {
      Lower(ConfigWith(activation), {wrong});
      EXPECT_EQ(Fused(), 0u) << "the library's layer, then our kernel";
    }
  }
  for (const Activation other : {Activation::kGelu, Activation::kSquaredRelu}) {
    Lower(ConfigWith(other), {SimtDense::kInvariant});
    EXPECT_EQ(Fused(), 0u);
  }
}

// Whichever of the two multiplies, the device holds the weights once, in the layout that it reads.
TEST_F(LowerToCudaTest, TheLibraryMultipliesInInt8IfItsSumsAreExact) {
  ModelConfig config = ConfigWith(Activation::kRelu);
  config.quantization.projections = Quantization::kInt8;
  Lower(config, {SimtDense::kUnfinished});
  EXPECT_EQ(lowered_.int8_width, 0);
  EXPECT_EQ(Fused(), 2u) << "our kernel applies the activation";
  const int64_t own_bytes = weights_->bytes();
  Lower(config, {SimtDense::kInvariant});
  EXPECT_EQ(lowered_.int8_width, std::max(config.intermediate_size,
                                          (config.heads + 2 * config.kv_heads) * config.head_dim))
      << "the widest of q, k and v in one, o, up and down";
  EXPECT_EQ(Fused(), 0u);
  EXPECT_LE(weights_->bytes(), own_bytes) << "panels are filled up";
  for (const int32_t tokens : {1, 33, kMinInt8Slice + 1, kMaxDenseRows + 1}) {
    const StepLayout layout = lowered_.LayOut(*model_, {tokens, 1});
    EXPECT_GE(layout.row_scales - layout.quantized,
              Int8DenseRows(tokens) * lowered_.quantized_width);
    EXPECT_GE(layout.workspace - layout.int8_sums,
              Int8Sums(tokens, lowered_.int8_width) * int64_t{sizeof(int32_t)});
  }
}

TEST_F(LowerToCudaTest, TheLibraryComputesTheHeadUnlessItHasABias) {
  Lower(TinyConfig(1), {});
  EXPECT_EQ(lowered_.head.layer, nullptr);
  Lower(TinyConfig(1), {SimtDense::kInvariant});
  EXPECT_NE(lowered_.head.layer, nullptr);
  const GraphOp& head = model_->graph.ops.back();
  HeadOp with_bias = std::get<HeadOp>(head);
  with_bias.bias.name = "bias";
  EXPECT_TRUE(ShapeOf(model_->graph, std::get<HeadOp>(head), 61, DenseType::kBF16).has_value());
  EXPECT_FALSE(ShapeOf(model_->graph, with_bias, 61, DenseType::kBF16).has_value());
}

// A table with one of the shapes adds a layer with a workspace to the model, except for the shape
// that is only used if the library lacks the activation after it.
TEST_F(LowerToCudaTest, DenseShapesOfListsEveryShapeThatLoweringUses) {
  const ModelConfig config = ConfigWith(Activation::kRelu);
  const auto shapes = DenseShapesOf(BuildGraph(config), config.vocab_size, DenseType::kF32);
  EXPECT_EQ(shapes.size(), 6u) << "q, k and v in one, o, up, up and f, down, the head";
  for (const DenseShape& shape : shapes) {
    AlgorithmTable table("SIMT emulator", "pretended");
    ASSERT_TRUE(table.Add(shape, {static_cast<uint64_t>(SimtDense::kWorkspace)}, "").ok());
    Lower(config, {SimtDense::kInvariant, SimtDense::kWorkspace}, &table);
    EXPECT_TRUE(layers_->notices().empty());
    ASSERT_NE(lowered_.head.layer, nullptr);
    EXPECT_EQ(lowered_.head.layer->workspace_bytes() > 0, shape.head) << ToString(shape);
    DenseShape whole = shape;
    whole.activation = DenseActivation::kRelu;
    const bool replaced = shape != whole && std::count(shapes.begin(), shapes.end(), whole) > 0;
    const size_t workspace =
        shape.head || replaced ? 0 : static_cast<size_t>(shape.n) * sizeof(float);
    EXPECT_EQ(lowered_.workspace_bytes, workspace) << ToString(shape);
  }
}

}  // namespace
}  // namespace sluice::testing
