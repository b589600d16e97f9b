// Models whose projections are multiplied by weights in int4. Each projection has the bits of the
// reference in integers, whether quantised on load or stored by any of the supported methods.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/cpu/cpu_model.h"
#include "engine/model/check_tensors.h"
#include "kernels/reference/int8.h"
#include "tests/engine/cpu/int8_models.h"
#include "tests/engine/cpu/projections.h"
#include "tests/engine/cpu/runner.h"
#include "tests/engine/cpu/stored_layers.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tensor_bytes.h"

namespace sluice::testing {
namespace {

using kernels::reference::Int4Column;
using kernels::reference::Int4Product;
using kernels::reference::Int8Product;
using kernels::reference::Quantize;
using kernels::reference::Quantized;
using kernels::reference::QuantizeInt4;
using nlohmann::json;
using ::testing::HasSubstr;

ModelConfig Wide() {
  ModelConfig config = TinyConfig(2);
  config.hidden_size = 64;
  config.intermediate_size = 128;
  config.head_dim = config.hidden_size / config.heads;
  return config;
}

class Int4ModelTest : public ::testing::TestWithParam<std::string> {};

TEST_P(Int4ModelTest, EveryProjectionHasTheBitsOfTheReference) {
  for (const int64_t group : {32, 64, 128}) {
    ModelConfig config = TinySluiceConfig(2);
    config.position_wise.layers[static_cast<int>(Projection::kUp)] = {false, true};
    config.position_wise.max_positions = config.max_positions;
    config.experts = {.count = 5, .chosen = 2, .width = 37, .layers = {true, false}};
    config.quantization = {Quantization::kInt4, true, group};
    const auto model = RandomModel(config, 5, kernels::DType::kBF16);
    std::map<std::string, Int4Column> columns;  // by tensor, matrix and column
    const auto product = [&](const LinearOp& op, int64_t matrix, int64_t col,
                             std::span<const float> x) {
      const std::string key =
          op.weight.name + " " + std::to_string(matrix) + " " + std::to_string(col);
      if (!columns.contains(key)) {
        columns[key] = QuantizeInt4(ColumnOf(*model, op, matrix, col), group);
      }
      return Int4Product(Quantize(x), columns[key]);
    };
    EXPECT_GT(CheckProjections(model, GetParam(), product), 10);
    Runner runner(model, {.threads = 1, .profile = GetParam()}, {4, 1});
    EXPECT_THAT(runner.executable().profile(),
                HasSubstr("-int4-g" + std::to_string(group) + "-head"));
  }
}

// The storage format of a checkpoint's layers.
struct Method {
  const char* name;
  const char* config;  // of quantization_config
  int64_t group;       // 0 for a whole column
  bool zeros;
};

const Method kMethods[] = {
    {"Packed",
     R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups":
       {"group_0": {"weights": {"num_bits": 4, "type": "int", "symmetric": true,
        "strategy": "group", "group_size": 32}}}})",
     32, false},
    {"PackedWithZeroPoints",
     R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups":
       {"group_0": {"weights": {"num_bits": 4, "type": "int", "symmetric": false,
        "strategy": "group", "group_size": 64}}}})",
     64, true},
    {"PackedByChannel",
     R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups":
       {"group_0": {"weights": {"num_bits": 4, "type": "int", "symmetric": true,
        "strategy": "channel"}}}})",
     0, false},
    {"Awq",
     R"({"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": true,
        "version": "gemm"})",
     32, true},
    {"Gptq", R"({"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": false})", 64,
     true},
    {"GptqV2",
     R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "checkpoint_format": "gptq_v2"})", 32,
     true},
};

// The layers of a checkpoint: columns by the weight's name.
using Layers = std::map<std::string, std::vector<Int4Column>>;

// Packs [rows, cols] values of four bits, eight of a row a word, in `order`.
TensorBytes Words(const std::string& name, int64_t rows, int64_t cols, std::span<const int> order,
                  const std::function<uint8_t(int64_t row, int64_t col)>& value) {
  TensorBytes tensor{name, "I32", {rows, cols / 8}, ""};
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t word = 0; word < cols / 8; ++word) {
      uint32_t bits = 0;
      for (int i = 0; i < 8; ++i) bits |= uint32_t{value(row, word * 8 + order[i])} << 4 * i;
      tensor.data.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
    }
  }
  return tensor;
}

// The same with eight of a column a word.
TensorBytes WordsOfColumns(const std::string& name, int64_t rows, int64_t cols,
                           const std::function<uint8_t(int64_t row, int64_t col)>& value) {
  TensorBytes tensor{name, "I32", {rows / 8, cols}, ""};
  for (int64_t word = 0; word < rows / 8; ++word) {
    for (int64_t col = 0; col < cols; ++col) {
      uint32_t bits = 0;
      for (int i = 0; i < 8; ++i) bits |= uint32_t{value(word * 8 + i, col)} << 4 * i;
      tensor.data.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
    }
  }
  return tensor;
}

// Version 1 of GPTQ subtracts 1 from all zero points of a word at once. A zero point of 0 borrows
// from the next one.
void SubtractFromWords(uint32_t offset, TensorBytes& tensor) {
  for (size_t at = 0; at < tensor.data.size(); at += sizeof(uint32_t)) {
    uint32_t word;
    std::memcpy(&word, tensor.data.data() + at, sizeof(word));
    word -= offset;
    std::memcpy(tensor.data.data() + at, &word, sizeof(word));
  }
}

void AddLayer(const std::string& method, const std::string& weight,
              const std::vector<Int4Column>& columns, std::vector<TensorBytes>& tensors) {
  constexpr int kInOrder[] = {0, 1, 2, 3, 4, 5, 6, 7}, kAwqOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
  const std::string layer = weight.substr(0, weight.rfind('.'));
  const int64_t out = std::ssize(columns), in = std::ssize(columns[0].codes);
  const int64_t groups = std::ssize(columns[0].scales);
  const bool packed = method.starts_with("Packed"), awq = method == "Awq";
  const auto code = [&](int64_t c, int64_t i) { return columns[c].codes[i]; };
  const auto zero = [&](int64_t g, int64_t c) { return columns[c].zeros[g]; };
  TensorBytes scales{layer + (packed ? ".weight_scale" : ".scales"), "F32", {}, ""};
  scales.shape = packed ? std::vector<int64_t>{out, groups} : std::vector<int64_t>{groups, out};
  for (int64_t i = 0; i < out * groups; ++i) {
    const float scale =
        packed ? columns[i / groups].scales[i % groups] : columns[i % out].scales[i / out];
    scales.data.append(reinterpret_cast<const char*>(&scale), sizeof(scale));
  }
  tensors.push_back(std::move(scales));
  if (packed) {
    tensors.push_back(Words(layer + ".weight_packed", out, in, kInOrder, code));
    if (method == "PackedWithZeroPoints") {
      tensors.push_back(WordsOfColumns(layer + ".weight_zero_point", out, groups,
                                       [&](int64_t c, int64_t g) { return zero(g, c); }));
    }
    return;
  }
  const auto by_row = [&](int64_t i, int64_t c) { return code(c, i); };
  tensors.push_back(awq ? Words(layer + ".qweight", in, out, kAwqOrder, by_row)
                        : WordsOfColumns(layer + ".qweight", in, out, by_row));
  tensors.push_back(Words(layer + ".qzeros", groups, out, awq ? kAwqOrder : kInOrder, zero));
  if (method == "Gptq") SubtractFromWords(0x11111111, tensors.back());
  if (awq) return;
  TensorBytes order{layer + ".g_idx", "I32", {in}, ""};
  for (int64_t i = 0; i < in; ++i) {
    const auto group = static_cast<int32_t>(i / columns[0].group);
    order.data.append(reinterpret_cast<const char*>(&group), sizeof(group));
  }
  tensors.push_back(std::move(order));
}

// Writes a checkpoint whose layers have random codes, scales and zero points, and returns them.
Layers WriteCheckpoint(const Method& method, std::mt19937_64& random, const std::string& directory,
                       const std::function<void(std::vector<TensorBytes>&)>& change = nullptr) {
  const ModelConfig config = Wide();
  const auto model = RandomModel(config, 8, kernels::DType::kBF16);
  Layers layers;
  std::vector<TensorBytes> tensors;
  for (const GraphOp& op : model->graph.ops) {
    const auto* const linear = std::get_if<LinearOp>(&op);
    if (linear == nullptr) continue;
    const int64_t out = linear->weight.shape[0], in = linear->weight.shape[1];
    const int64_t group = method.group == 0 ? in : method.group;
    std::vector<Int4Column>& columns = layers[linear->weight.name];
    for (int64_t c = 0; c < out; ++c) {
      Int4Column column = {{}, group, {}, {}};
      for (int64_t i = 0; i < in; ++i) column.codes.push_back(random() % 16);
      for (int64_t g = 0; g < in / group; ++g) {
        column.scales.push_back(std::ldexp(1.0f + random() % 100, -14));
        column.zeros.push_back(method.zeros ? random() % 16 : 8);
      }
      columns.push_back(std::move(column));
    }
    AddLayer(method.name, linear->weight.name, columns, tensors);
  }
  for (const auto& [name, tensor] : model->checkpoint.tensors()) {
    if (layers.contains(name)) continue;
    tensors.push_back(BytesOfBF16(name, tensor));
  }
  if (change) change(tensors);
  json root = json::parse(ConfigJson(config));
  root["quantization_config"] = json::parse(method.config);
  WriteTestFile(directory + "/config.json", root.dump());
  WriteTestFile(directory + "/model.safetensors", SafetensorsFile(tensors));
  return layers;
}

TEST_P(Int4ModelTest, StoredLayersHaveTheBitsOfTheReference) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (const Method& method : kMethods) {
    SCOPED_TRACE(::testing::Message() << method.name << ", seed " << seed);
    const TemporaryDirectory directory;
    const Layers layers = WriteCheckpoint(method, random, directory.path());
    const auto model = LoadModel("m", 1, directory.path());
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(CheckTensors(**model), absl::OkStatus());
    EXPECT_EQ(
        CheckProjections(*model, GetParam(),
                         [&](const LinearOp& op, int64_t, int64_t col, std::span<const float> x) {
                           // A group of a whole column has at most 128 rows here.
                           return Int4Product(Quantize(x), layers.at(op.weight.name)[col]);
                         }),
        14);
  }
}

// Layers in int4 and int8 read the same rows, of a norm and of an activation.
TEST_P(Int4ModelTest, RowsAreQuantisedForTheWeightsOfEachLayerThatReadsThem) {
  ModelConfig config = Wide();
  config.quantization.projections = Quantization::kInt4;
  const auto as_bf16 = RandomModel(config, 8, kernels::DType::kBF16);
  const auto in_int8 = [](const std::string& name) {
    return name.find("layers.0.self_attn.k_proj") != std::string::npos ||
           name.find("layers.1.self_attn.q_proj") != std::string::npos ||
           name.find("layers.1.mlp.down_proj") != std::string::npos;
  };
  const TemporaryDirectory directory;
  WriteTestFile(directory.File("config.json"), ConfigJson(config));
  WriteStored(*as_bf16, directory.path(), [&](std::vector<TensorBytes>& tensors) {
    std::erase_if(tensors, [&](const TensorBytes& tensor) {
      return !in_int8(tensor.name) && (tensor.dtype == "I8" || tensor.dtype == "F32");
    });
    for (const auto& [name, tensor] : as_bf16->checkpoint.tensors()) {
      if (std::ranges::find(tensors, name, &TensorBytes::name) == tensors.end()) {
        tensors.push_back(BytesOfBF16(name, tensor));
      }
    }
  });
  const auto model = LoadModel("m", 1, directory.path());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto product = [&](const LinearOp& op, int64_t position, int64_t col,
                           std::span<const float> row) {
    const Quantized x = Quantize(row);
    const std::vector<float> column = ColumnOf(*as_bf16, op, position, col);
    return in_int8(op.weight.name)
               ? Int8Product(x, Quantize(column))
               : Int4Product(x, QuantizeInt4(column, config.quantization.group));
  };
  EXPECT_EQ(CheckProjections(*model, GetParam(), product), 14);
}

TEST(Int4ModelErrors, NameTheTensor) {
  std::mt19937_64 random(3);
  const std::string q = "model.layers.0.self_attn.q_proj";
  const auto error = [&](const Method& method, const auto& change) {
    const TemporaryDirectory directory;
    WriteCheckpoint(method, random, directory.path(), change);
    return LoadStatus(directory.path());
  };
  const Method &awq = kMethods[3], &gptq = kMethods[4];
  EXPECT_EQ(error(awq, [](auto&) {}), "OK");
  EXPECT_THAT(error(awq, [&](auto& tensors) { Remove(tensors, q + ".qzeros"); }),
              HasSubstr("tensor " + q + ".qzeros is missing"));
  EXPECT_THAT(error(awq,
                    [&](auto& tensors) {
                      Named(tensors, q + ".qweight").shape = {8, 64};
                    }),
              HasSubstr("tensor " + q + ".qweight has shape [8, 64], must be [64, 8]"));
  EXPECT_THAT(error(awq, [&](auto& tensors) { Named(tensors, q + ".scales").dtype = "I32"; }),
              HasSubstr("tensor " + q + ".scales has dtype I32, must be F32, F16 or BF16"));
  EXPECT_THAT(error(gptq,
                    [&](auto& tensors) {
                      std::swap(Named(tensors, q + ".g_idx").data[0],
                                Named(tensors, q + ".g_idx").data[4]);
                      Named(tensors, q + ".g_idx").data[8] = 1;
                    }),
              HasSubstr("tensor " + q +
                        ".g_idx puts row 2 into group 1: groups of rows that are "
                        "not neighbours (act-order) are not supported"));
  EXPECT_THAT(
      error(gptq, [](auto& tensors) { Named(tensors, "lm_head.weight").name = "lm_head.qweight"; }),
      HasSubstr("tensor lm_head.weight is stored in int4, which is not supported for a "
                "head; quantise the model without its head"));
}

std::string ProfileName(const ::testing::TestParamInfo<std::string>& param) {
  return TestName(param.param);
}
INSTANTIATE_TEST_SUITE_P(Profiles, Int4ModelTest, ::testing::ValuesIn(SupportedProfiles()),
                         ProfileName);

}  // namespace
}  // namespace sluice::testing
