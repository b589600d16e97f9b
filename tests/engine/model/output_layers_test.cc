// Dense layers of states equal a reference, and the output of a state has the same bits next to any
// other states and however the rows are divided.
#include "engine/model/output_layers.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/dtype.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using testing::SafetensorsFile;
using testing::TensorBytes;

class OutputLayersTest : public ::testing::Test {
 protected:
  // Returns a tensor of random values that bf16 has, and writes them to `values`.
  TensorBytes Draw(const std::string& name, bool bf16, std::vector<int64_t> shape,
                   std::vector<float>* values) {
    std::normal_distribution<float> normal;
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::string data;
    for (int64_t i = 0; i < count; ++i) {
      const uint16_t half = kernels::RoundToBF16(normal(random_));
      const uint32_t bits = uint32_t{half} << 16;
      values->push_back(std::bit_cast<float>(bits));
      const auto* const bytes = reinterpret_cast<const char*>(&bits);
      data.append(bf16 ? bytes + 2 : bytes, bf16 ? 2 : 4);
    }
    return {.name = name, .dtype = bf16 ? "BF16" : "F32", .shape = std::move(shape), .data = data};
  }

  int64_t Below(uint64_t n) { return static_cast<int64_t>(random_() % n); }

  const uint64_t seed_ = std::random_device()();
  std::mt19937_64 random_{seed_};
};

TEST_F(OutputLayersTest, EqualTheReferenceWithTheSameBitsNextToAnyStates) {
  SCOPED_TRACE(seed_);
  for (int trial = 0; trial < 12; ++trial) {
    // A layer wider than the block of weights that is converted at a time, and a narrow one.
    const int64_t in = 500 + Below(40), inner = 1 + Below(40), out = 1 + Below(9);
    const bool bias = trial % 2 == 0;
    std::vector<float> first, second, biases;
    std::vector<TensorBytes> tensors = {Draw("a.weight", trial % 3 == 0, {inner, in}, &first)};
    if (bias) tensors.push_back(Draw("a.bias", false, {inner}, &biases));
    tensors.push_back(Draw("b.weight", false, {out, inner}, &second));
    const TemporaryDirectory folder;
    WriteTestFile(folder.File("layers.safetensors"), SafetensorsFile(tensors));
    const std::vector<DenseConfig> config = {{.file = "layers.safetensors",
                                              .module = "a",
                                              .in = in,
                                              .out = inner,
                                              .bias = bias,
                                              .function = DenseFunction::kTanh},
                                             {.file = "layers.safetensors",
                                              .module = "b",
                                              .in = inner,
                                              .out = out,
                                              .bias = false,
                                              .function = DenseFunction::kIdentity}};
    const auto directory = Directory::Open(folder.path());
    ASSERT_TRUE(directory.ok()) << directory.status();
    const auto layers = OutputLayers::Load(config, *directory, Checkpoint(), FileAccess::kMap);
    ASSERT_TRUE(layers.ok()) << layers.status();

    const int64_t count = 1 + Below(20);
    std::normal_distribution<double> normal;
    std::vector<double> states(count * in);
    for (double& value : states) value = normal(random_);
    std::vector<double> together = states, divided = states;
    layers->Apply(&together);
    layers->Apply(&divided, [&](int64_t n, int64_t, auto body) {
      for (int64_t i = n; i > 0; --i) body(i - 1, i);
    });
    ASSERT_EQ(std::ssize(together), count * out);
    EXPECT_EQ(divided, together);
    for (int64_t s = 0; s < count; ++s) {
      std::vector<double> single(states.begin() + s * in, states.begin() + (s + 1) * in);
      const std::vector<double> state = single;
      layers->Apply(&single);
      std::vector<double> hidden(inner);
      for (int64_t row = 0; row < inner; ++row) {
        for (int64_t i = 0; i < in; ++i) hidden[row] += first[row * in + i] * state[i];
        hidden[row] = std::tanh(hidden[row] + (bias ? biases[row] : 0.0f));
      }
      for (int64_t row = 0; row < out; ++row) {
        double expected = 0;
        for (int64_t i = 0; i < inner; ++i) expected += second[row * inner + i] * hidden[i];
        EXPECT_NEAR(single[row], expected, 1e-10);
        EXPECT_EQ(together[s * out + row], single[row]) << "state " << s << " of " << count;
      }
    }
  }
}

}  // namespace
}  // namespace sluice
