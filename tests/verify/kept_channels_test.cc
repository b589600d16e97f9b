// Checkpoints whose int8 layers keep channels: which channels, how many, and the written tensors.
#include "engine/model/kept_channels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/verify/quantize_fixture.h"
#include "verify/activations.h"
#include "verify/int8_rows.h"
#include "verify/outliers.h"
#include "verify/products.h"
#include "verify/quantize.h"
#include "verify/smoothing.h"

namespace sluice::verify {
namespace {

using sluice::testing::FamilyGoldens;
using sluice::testing::GoldenPath;
using ::testing::HasSubstr;

class KeptChannelsTest : public QuantizeTest {
 protected:
  // Quantises a model to `name`, and returns the report.
  std::string Quantize(const std::string& from, const std::string& name, bool smooth,
                       int64_t channels, double keep_above = 0) {
    const auto report = QuantizeModel(from, {.text = text(),
                                             .out = out(name),
                                             .smooth = smooth,
                                             .keep_above = keep_above,
                                             .keep_channels = channels});
    EXPECT_TRUE(report.ok()) << report.status();
    return report.value_or("");
  }
};

// Returns how many layers of a report are in int8, and how many of them keep channels.
std::pair<int, int> LayersOf(const std::string& report) {
  std::pair<int, int> layers = {0, 0};
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) {
    if (!line.substr(0, line.find(' ')).ends_with(".weight")) continue;
    layers.first += line.ends_with("  kept") ? 0 : 1;
    layers.second += line.ends_with(" channels kept") ? 1 : 0;
  }
  return layers;
}

TEST_F(KeptChannelsTest, AreTheOutliers) {
  Write(PlainConfig(), kernels::DType::kBF16);
  PlantOutliers(model());
  const auto report = [&](const std::string& name, int64_t channels, double keep_above = 0) {
    return Quantize(model(), name, false, channels, keep_above);
  };
  EXPECT_EQ(LayersOf(report("plain", 0)), std::pair(14, 0));
  EXPECT_EQ(LayersOf(report("kept", 16)), std::pair(14, 14));
  EXPECT_LT(Difference(out("kept")), Difference(out("plain")) / 4);
  // The outputs of norms have four outliers. Of the values and of the features of `up`, one in
  // eight is an outlier.
  const auto loaded = LoadModel("m", 1, out("kept")), before = LoadModel("m", 1, model());
  const auto outliers = [&](const std::string& layer, int every, int first) {
    const std::string name = "model.layers.0." + layer + ".weight";
    const std::vector<int64_t> shape = (*loaded)->checkpoint.tensors().at(name).shape;
    const auto kept = FindKept((*loaded)->checkpoint, name, shape);
    EXPECT_TRUE(kept.ok()) << kept.status();
    EXPECT_EQ(kept->weights.dtype, kernels::DType::kBF16);
    EXPECT_EQ(std::ranges::count_if(kept->channels,
                                    [&](int32_t channel) { return channel % every == first; }),
              shape[1] / every)
        << layer;
    // The scales of the other channels do not depend on them.
    const Tensor scales = (*loaded)->checkpoint.tensors().at(name + "_scale");
    const Tensor stored = (*before)->checkpoint.tensors().at(name);
    std::vector<float> values(static_cast<size_t>(stored.elements()));
    kernels::ConvertToFloat(stored.data, stored.dtype, 0, stored.elements(), values.data());
    const std::span written(static_cast<const float*>(scales.data), static_cast<size_t>(shape[0]));
    EXPECT_THAT(written,
                ::testing::ElementsAreArray(QuantizeRows(values, shape[1], kept->channels).scales))
        << layer;
  };
  for (const char* layer : {"self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj"}) {
    outliers(layer, 16, 3);
  }
  for (const char* layer : {"self_attn.o_proj", "mlp.down_proj"}) outliers(layer, 8, 5);
  // The bound applies to the remaining error.
  EXPECT_EQ(LayersOf(report("bound", 0, 0.02)).first, 0);
  EXPECT_GT(LayersOf(report("both", 16, 0.02)).first, 7);
}

// A group of layers that read the same rows, and the error that each has with some kept channels.
class Group {
 public:
  Group(const Model& model, const SmoothingGroup& group, const std::vector<EnteringRows>& entering)
      : width_(group.width), rows_(entering[group.readers.front()].rows) {
    for (const size_t reader : group.readers) {
      const auto& linear = std::get<LinearOp>(model.graph.ops[reader]);
      const Tensor tensor = model.checkpoint.Find(linear.weight.name, linear.weight.shape).value();
      std::vector<float>& values = weights_[linear.weight.name];
      values.resize(static_cast<size_t>(tensor.elements()));
      kernels::ConvertToFloat(tensor.data, tensor.dtype, 0, tensor.elements(), values.data());
    }
  }

  std::map<std::string, double> Errors(const std::vector<int32_t>& kept) const {
    std::map<std::string, double> errors;
    for (const auto& [name, values] : weights_) {
      errors[name] = SquaresOf(products_.InF32(rows_, values, width_),
                               products_.InInt8(rows_, values, width_, kept))
                         .relative();
    }
    return errors;
  }

  // Returns the fewest of the first 0, 1, 2, 4, .. `most` outliers whose error is at most 1.1 times
  // the error with `most`.
  std::vector<int32_t> Fewest(int64_t most) const {
    const std::vector<int32_t> outliers = OutlierChannels(rows_, width_, most);
    most = std::min(most, std::ssize(outliers));
    const auto first = [&](int64_t count) {
      std::vector<int32_t> kept(outliers.begin(), outliers.begin() + count);
      std::ranges::sort(kept);
      return kept;
    };
    const auto error = [&](const std::vector<int32_t>& kept) {
      double sum = 0;
      for (const auto& [unused, each] : Errors(kept)) sum += each * each;
      return std::sqrt(sum);
    };
    const double enough = 1.1 * error(first(most));
    if (error({}) <= enough) return {};
    int64_t count = 1;
    while (count < most && error(first(count)) > enough) count *= 2;
    return first(std::min(count, most));
  }

 private:
  int64_t width_;
  std::vector<float> rows_;
  std::map<std::string, std::vector<float>> weights_;
  const Products products_;
};

TEST_F(KeptChannelsTest, AreTheFewestWithNearlyTheLeastError) {
  Write(PlainConfig(), kernels::DType::kBF16);
  PlantOutliers(model());
  const auto loaded = LoadModel("m", 1, model());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto entering = CollectRows(*loaded, *ReadTexts(**loaded, text()));
  ASSERT_TRUE(entering.ok()) << entering.status();
  std::map<size_t, int> layers;  // by the number of channels that they keep
  for (const int64_t most : {3, 7, 16}) {
    const std::string name = "most" + std::to_string(most);
    const std::string report = Quantize(model(), name, false, most);
    const auto written = LoadModel("m", 1, out(name));
    ASSERT_TRUE(written.ok()) << written.status();
    for (const SmoothingGroup& each : FindSmoothingGroups(**loaded)) {
      const Group group(**loaded, each, *entering);
      const std::vector<int32_t> expected = group.Fewest(most);
      for (const auto& [layer, error] : group.Errors(expected)) {
        SCOPED_TRACE(layer);
        ++layers[expected.size()];
        const Tensor& tensor = (*written)->checkpoint.tensors().at(layer);
        const auto kept = FindKept((*written)->checkpoint, layer, tensor.shape);
        ASSERT_TRUE(kept.ok()) << kept.status();
        EXPECT_EQ(std::vector(kept->channels.begin(), kept->channels.end()), expected);
        if (expected.empty()) continue;
        EXPECT_THAT(report, ::testing::ContainsRegex(
                                absl::StrFormat("%s +[0-9.]+ +[0-9.]+ +%.5f with %d channels kept",
                                                layer, error, expected.size())));
      }
    }
  }
  EXPECT_GT(layers.size(), 3u) << "too few different numbers of kept channels";
}

// Scales are powers of two, so a model that already has them keeps the same channels. Compares only
// layers that produce no other layer's rows: scales of the others change the weight of their
// errors.
TEST_F(KeptChannelsTest, AreChosenAndWrittenAfterTheScales) {
  Write(PlainConfig(), kernels::DType::kBF16);
  PlantOutliers(model());
  Quantize(model(), "together", true, 8);
  Quantize(model(), "scales", true, 0, 1e-9);
  Quantize(out("scales"), "channels", false, 8);
  const auto together = LoadModel("m", 1, out("together")),
             after = LoadModel("m", 1, out("channels"));
  ASSERT_TRUE(together.ok() && after.ok()) << together.status() << after.status();
  int kept = 0;
  for (const auto& [name, tensor] : (*together)->checkpoint.tensors()) {
    if (name.find("o_proj") == name.npos && name.find("down_proj") == name.npos) continue;
    const auto found = (*after)->checkpoint.tensors().find(name);
    ASSERT_NE(found, (*after)->checkpoint.tensors().end()) << name;
    ASSERT_EQ(tensor.shape, found->second.shape) << name;
    ASSERT_EQ(tensor.dtype, found->second.dtype) << name;
    const auto bytes = static_cast<size_t>(tensor.elements() * kernels::DTypeBytes(tensor.dtype));
    EXPECT_EQ(std::memcmp(tensor.data, found->second.data, bytes), 0) << name;
    kept += name.ends_with("_kept_channels") ? 1 : 0;
  }
  EXPECT_GT(kept, 0);
  EXPECT_NE(ReadTestFile(out("scales") + "/model.safetensors"),
            ReadTestFile(model() + "/model.safetensors"));
}

// The layers of a group share their kept channels, so a tensor must be in one group only.
TEST(SmoothingGroupsTest, EachTensorIsOfOneGroupInEveryFamily) {
  for (const std::string& name : FamilyGoldens()) {
    SCOPED_TRACE(name);
    const auto model = LoadModel(name, 1, GoldenPath("families/" + name));
    ASSERT_TRUE(model.ok()) << model.status();
    std::map<std::string, size_t> group_of;
    const std::vector<SmoothingGroup> groups = FindSmoothingGroups(**model);
    for (size_t i = 0; i < groups.size(); ++i) {
      for (const size_t reader : groups[i].readers) {
        const auto& linear = std::get<LinearOp>((*model)->graph.ops[reader]);
        EXPECT_EQ(group_of.try_emplace(linear.weight.name, i).first->second, i)
            << linear.weight.name;
      }
    }
    EXPECT_FALSE(group_of.empty());
  }
}

}  // namespace
}  // namespace sluice::verify
