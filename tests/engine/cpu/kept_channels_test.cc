// Models in int8 whose layers keep channels. Each projection has the bits of the reference, even if
// layers that read the same rows keep different channels. Errors name the tensor.
#include "engine/model/kept_channels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/cpu/int8_layout.h"
#include "kernels/reference/int8.h"
#include "tests/engine/cpu/int8_models.h"
#include "tests/engine/cpu/projections.h"
#include "tests/engine/cpu/stored_layers.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/temporary_directory.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using Change = std::function<void(std::vector<TensorBytes>&)>;

constexpr char kLayer[] = "model.layers.0.";

std::string Weight(const std::string& layer) { return kLayer + layer + ".weight"; }

// The kept channels of the model's layers, by name.
std::map<std::string, std::vector<int32_t>> Kept() {
  return {{Weight("self_attn.q_proj"), {0, 9, 31}}, {Weight("self_attn.k_proj"), {0, 9, 31}},
          {Weight("self_attn.o_proj"), {5}},        {Weight("mlp.gate_proj"), {2}},
          {Weight("mlp.up_proj"), {2, 3}},          {Weight("mlp.down_proj"), {1, 30, 39}}};
}

class KeptChannelsTest : public ::testing::Test {
 protected:
  // Returns the status of loading the model after a change of its tensors.
  absl::StatusOr<std::shared_ptr<const Model>> Stored(const Change& change = nullptr) {
    WriteTestFile(directory_.File("config.json"), ConfigJson(TinyConfig(2)));
    WriteStored(*plain_, directory_.path(), [&](std::vector<TensorBytes>& tensors) {
      for (const auto& [name, channels] : Kept()) AddKept(*plain_, name, channels, tensors);
      if (change) change(tensors);
    });
    return LoadModel("m", 1, directory_.path());
  }

  const std::shared_ptr<const Model> plain_ = RandomModel(TinyConfig(2), 8, kernels::DType::kBF16);
  const TemporaryDirectory directory_;
};

class KeptChannelsByProfile : public KeptChannelsTest,
                              public ::testing::WithParamInterface<std::string> {};

TEST_P(KeptChannelsByProfile, EveryProjectionHasTheBitsOfTheReference) {
  const auto model = Stored();
  ASSERT_TRUE(model.ok()) << model.status();
  const auto product = [&](const LinearOp& op, int64_t, int64_t col, std::span<const float> x) {
    const std::vector<float> column = ColumnOf(*plain_, op, 0, col);
    std::vector<float> rest(x.begin(), x.end()), kept_x, kept_w;
    const auto kept = Kept();
    if (const auto found = kept.find(op.weight.name); found != kept.end()) {
      for (const int32_t channel : found->second) {
        rest[channel] = 0;
        kept_x.push_back(x[channel]);
        kept_w.push_back(column[channel]);
      }
    }
    return kernels::reference::Int8Product(kernels::reference::Quantize(rest),
                                           kernels::reference::Quantize(column), kept_x, kept_w);
  };
  EXPECT_EQ(CheckProjections(*model, GetParam(), product), 14);
}

INSTANTIATE_TEST_SUITE_P(Profiles, KeptChannelsByProfile, ::testing::ValuesIn(SupportedProfiles()),
                         [](const auto& tested) { return TestName(tested.param); });

TEST_F(KeptChannelsTest, RowsAreQuantisedAgainForLayersThatKeepOthers) {
  const auto model = Stored();
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<RowQuantization> plan = QuantizationOfOps(**model);
  std::map<std::string, std::vector<float>> by_itself;  // layers that quantise their input
  std::vector<size_t> zeros;                            // of the factors of other ops
  for (size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].weights == Quantization::kNone) continue;
    const auto* const linear = std::get_if<LinearOp>(&(*model)->graph.ops[i]);
    if (linear != nullptr) {
      by_itself[linear->weight.name] = plan[i].factors;
    } else {
      zeros.push_back(std::ranges::count(plan[i].factors, 0.0f));
    }
  }
  // The norms and the activation of both layers.
  EXPECT_THAT(zeros, ::testing::ElementsAre(3, 1, 3, 0, 0, 0));
  // v keeps none, and up one more than gate.
  ASSERT_EQ(by_itself.size(), 4u);
  EXPECT_TRUE(by_itself.at(Weight("self_attn.v_proj")).empty());
  EXPECT_EQ(std::ranges::count(by_itself.at(Weight("mlp.up_proj")), 0.0f), 2);
  EXPECT_EQ(by_itself.at(Weight("self_attn.o_proj"))[5], 0);
  EXPECT_TRUE(by_itself.at("model.layers.1.self_attn.o_proj.weight").empty());
}

TEST_F(KeptChannelsTest, ErrorsNameTheTensorAndTheExpectedValue) {
  const std::string q = Weight("self_attn.q_proj"), channels = NameOfKeptChannels(q);
  const auto error = [&](const Change& change) {
    const auto model = Stored(change);
    return model.ok() ? LoadStatus(directory_.path()) : model.status().ToString();
  };
  const auto listing = [&](std::vector<int32_t> values) {
    return [=](std::vector<TensorBytes>& tensors) {
      Named(tensors, channels)
          .data.assign(reinterpret_cast<const char*>(values.data()),
                       values.size() * sizeof(int32_t));
    };
  };
  EXPECT_EQ(error(nullptr), "OK");
  for (const auto& [values, wrong] : std::map<std::vector<int32_t>, std::string>{
           {{0, 9, 32}, "32"}, {{0, 9, 9}, "9"}, {{4, 3, 5}, "3"}, {{-1, 3, 5}, "-1"}}) {
    EXPECT_THAT(error(listing(values)), HasSubstr("tensor " + channels + " has channel " + wrong +
                                                  "; channels must ascend within [0, 31]"));
  }
  EXPECT_THAT(error([&](auto& tensors) { Remove(tensors, channels); }),
              HasSubstr("tensor " + channels + " is missing"));
  EXPECT_THAT(error([&](auto& tensors) { Remove(tensors, NameOfKept(q)); }),
              HasSubstr("tensor " + NameOfKept(q) + " is missing"));
  EXPECT_THAT(error([&](auto& tensors) {
                Named(tensors, channels).shape = {1, 3};
              }),
              HasSubstr("tensor " + channels + " has shape [1, 3], must be [3]"));
  EXPECT_THAT(error([&](auto& tensors) { Named(tensors, channels).dtype = "F32"; }),
              HasSubstr("tensor " + channels + " has dtype another, must be I32"));
  EXPECT_THAT(error([&](auto& tensors) {
                TensorBytes& tensor = Named(tensors, channels);
                tensor.dtype = "I64";
                tensor.data.resize(2 * tensor.data.size());
              }),
              HasSubstr("tensor " + channels + " has dtype I64, must be I32"));
  EXPECT_THAT(error([&](auto& tensors) {
                Named(tensors, channels).shape = {0};
                Named(tensors, channels).data.clear();
              }),
              HasSubstr("tensor " + channels + " has 0 channels, must have 1 to 32"));
  EXPECT_THAT(error([&](auto& tensors) {
                Named(tensors, NameOfKept(q)).shape = {3, 32};
              }),
              HasSubstr("tensor " + NameOfKept(q) + " has shape [3, 32], must be [32, 3]"));
}

}  // namespace
}  // namespace sluice::testing
