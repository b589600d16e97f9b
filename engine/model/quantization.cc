#include "engine/model/quantization.h"

#include <algorithm>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "engine/model/model.h"
#include "engine/model/stored_int4.h"
#include "kernels/dtype.h"

namespace sluice {
namespace {

constexpr size_t kLongestWord = 64;

// Fails unless the key has this value.
void Require(ObjectReader& object, const char* key, const std::string& value) {
  const std::string found = object.String(key, kLongestWord, "");
  if (found != value) object.Fail(key, "is not supported, must be \"" + value + "\"");
}

// Fails unless the object describes integers of `bits` bits.
void RequireIntegers(ObjectReader& values, const char* key, int64_t bits) {
  if (values.Integer(key, 1, 64, 0) != bits) {
    values.Fail(key, absl::StrCat("is not supported, must be ", bits));
  }
}

// Fails unless the object describes symmetric values of eight bits with this strategy.
void RequireInt8(ObjectReader& group, const char* key, const char* strategy, bool dynamic) {
  if (!group.Has(key)) return group.Fail(key, "is missing");
  ObjectReader values = group.Object(key);
  RequireIntegers(values, "num_bits", 8);
  Require(values, "type", "int");
  Require(values, "strategy", strategy);
  if (!values.Boolean("symmetric", true)) values.Fail("symmetric", "must be true");
  if (values.Boolean("dynamic", false) != dynamic) {
    values.Fail("dynamic", dynamic ? "must be true" : "must be false");
  }
}

// Reads the rows of a group: a size that the kernels compute, or a multiple of the largest of
// these, whose scales are then repeated; 0 for a whole column, which `whole` stands for.
int64_t ReadGroup(ObjectReader& object, const char* key, int64_t whole) {
  constexpr int64_t kMaxGroup = 1 << 16, kLargest = 128;
  const int64_t group = object.Integer(key, -1, kMaxGroup, whole);
  if (group == whole) return 0;
  if (IsQuantizationGroup(group) || (group > 0 && group % kLargest == 0)) return group;
  object.Fail(key, absl::StrCat("is ", group, ", must be 32, 64 or a multiple of 128"));
  return 0;
}

// Reads a group of layers in int4. The activations of such a checkpoint were not quantised.
void ReadPackedGroup(ObjectReader& group, StoredQuantization* stored) {
  if (!group.Has("weights")) return group.Fail("weights", "is missing");
  if (group.Has("input_activations")) {
    return group.Fail("input_activations", "is not supported with weights of 4 bits");
  }
  ObjectReader values = group.Object("weights");
  RequireIntegers(values, "num_bits", 4);
  Require(values, "type", "int");
  const std::string strategy = values.String("strategy", kLongestWord, "");
  if (strategy != "group" && strategy != "channel") {
    values.Fail("strategy", "is not supported, must be \"group\" or \"channel\"");
  }
  const int64_t rows = strategy == "channel" ? 0 : ReadGroup(values, "group_size", -1);
  const bool zeros = !values.Boolean("symmetric", true);
  if (stored->format == StoredQuantization::Format::kPacked &&
      (stored->group != rows || stored->zeros != zeros)) {
    values.Fail("group_size", "and \"symmetric\" must be the same in all groups of layers");
  }
  stored->format = StoredQuantization::Format::kPacked;
  stored->group = rows;
  stored->zeros = zeros;
}

// Checks that the kernels can compute the stored format of compressed-tensors. The names and dtypes
// of the tensors determine which ones are quantised.
StoredQuantization ReadCompressedTensors(ObjectReader& object) {
  StoredQuantization stored;
  const std::string format = object.String("format", kLongestWord, "");
  const bool packed = format == "pack-quantized";
  if (!packed && format != "int-quantized") {
    object.Fail("format", "is not supported, must be \"int-quantized\" or \"pack-quantized\"");
  }
  if (object.Has("kv_cache_scheme")) object.Fail("kv_cache_scheme", "is not supported");
  const nlohmann::json* const listed = object.Find("config_groups");
  if (listed == nullptr || !listed->is_object()) {
    object.Fail("config_groups", "must be an object");
    return stored;
  }
  if (!packed) stored.format = StoredQuantization::Format::kInt8;
  ObjectReader groups = object.Object("config_groups");
  for (const auto& [name, unused] : listed->items()) {
    ObjectReader group = groups.Object(name);
    if (packed) {
      ReadPackedGroup(group, &stored);
    } else {
      RequireInt8(group, "weights", "channel", false);
      RequireInt8(group, "input_activations", "token", true);
    }
    if (group.Has("output_activations")) group.Fail("output_activations", "is not supported");
  }
  return stored;
}

StoredQuantization ReadAwq(ObjectReader& object) {
  RequireIntegers(object, "bits", 4);
  if (object.Has("version")) Require(object, "version", "gemm");
  if (!object.Boolean("zero_point", true)) object.Fail("zero_point", "must be true");
  return {StoredQuantization::Format::kAwq, ReadGroup(object, "group_size", -1), true};
}

StoredQuantization ReadGptq(ObjectReader& object) {
  RequireIntegers(object, "bits", 4);
  const std::string format = object.String("checkpoint_format", kLongestWord, "gptq");
  if (format != "gptq" && format != "gptq_v2") {
    object.Fail("checkpoint_format", "is not supported, must be \"gptq\" or \"gptq_v2\"");
  }
  return {
      format == "gptq" ? StoredQuantization::Format::kGptq : StoredQuantization::Format::kGptqV2,
      ReadGroup(object, "group_size", -1), true};
}

}  // namespace

QuantizationConfig ReadQuantization(ObjectReader& extensions) {
  QuantizationConfig config = {.projections = extensions.Enum<Quantization>("quantization"),
                               .head = extensions.Boolean("quantize_head", false)};
  if (config.head && config.projections == Quantization::kNone) {
    extensions.Fail("quantize_head", "needs quantization \"int8\" or \"int4\"");
  }
  if (!extensions.Has("quantization_group")) return config;
  config.group = extensions.Integer("quantization_group", 1, 128, kQuantizationGroup);
  if (!IsQuantizationGroup(config.group)) {
    extensions.Fail("quantization_group",
                    absl::StrCat("is ", config.group, ", must be 32, 64 or 128"));
  }
  if (config.projections != Quantization::kInt4) {
    extensions.Fail("quantization_group", "needs quantization \"int4\"");
  }
  return config;
}

StoredQuantization ReadStoredQuantization(ObjectReader& root) {
  if (!root.Has("quantization_config")) return {};
  ObjectReader object = root.Object("quantization_config");
  const std::string method = object.String("quant_method", kLongestWord, "");
  if (method == "compressed-tensors") return ReadCompressedTensors(object);
  if (method == "awq") return ReadAwq(object);
  if (method == "gptq") return ReadGptq(object);
  object.Fail("quant_method",
              "is not supported, must be \"compressed-tensors\", \"awq\" or \"gptq\"");
  return {};
}

WeightPrecision PrecisionOf(const Model& model, const LinearOp& op) {
  constexpr int64_t kLargest = 128;
  const StoredQuantization& stored = model.config.stored_quantization;
  if (IsStoredInInt4(model.checkpoint, stored, op.weight.name)) {
    const int64_t group = stored.group == 0 ? kLargest : std::min(stored.group, kLargest);
    return {.quantization = Quantization::kInt4, .group = group, .stored = true};
  }
  if (model.checkpoint.IsInt8(op.weight.name)) {
    return {.quantization = Quantization::kInt8, .stored = true};
  }
  if (op.routes) return {};
  const QuantizationConfig& wanted = model.config.quantization;
  const bool grouped = wanted.projections == Quantization::kInt4;
  return {.quantization = wanted.projections, .group = grouped ? wanted.group : 0};
}

WeightPrecision PrecisionOf(const Model& model, const HeadOp& op) {
  const bool stored = model.checkpoint.IsInt8(op.weight.name);
  if (!stored && !model.config.quantization.head) return {};
  return {.quantization = Quantization::kInt8, .stored = stored};
}

absl::Status CheckStoredLayout(const TensorPart& part, MatrixLayout layout) {
  if (layout == MatrixLayout::kOutIn && part.run == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", part.name, " is stored quantised; this is supported only for layers stored ",
      "[out, in] whose rows are not interleaved with other layers' rows"));
}

absl::Status StoredMatricesError(const TensorPart& part) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", part.name, " is stored quantised; the matrices of a position-wise ",
                   "layer or of experts must be stored in floats"));
}

absl::Status CheckInt8Depth(const Model& model) {
  for (const GraphOp& op : model.graph.ops) {
    const auto* const linear = std::get_if<LinearOp>(&op);
    if (linear == nullptr) continue;
    const int64_t inputs = model.graph.buffers[linear->in].width;
    if (inputs <= kernels::kMaxInt8Depth) continue;
    const WeightPrecision precision = PrecisionOf(model, *linear);
    if (precision.quantization != Quantization::kInt8) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", linear->weight.name, " has ", inputs,
                     " inputs; a layer in int8 has at most ", kernels::kMaxInt8Depth, ". ",
                     precision.stored ? "Quantise the checkpoint without this layer"
                                      : "Set quantization to none or int4"));
  }
  return absl::OkStatus();
}

absl::Status CheckStoredHead(const Model& model, const HeadOp& op) {
  const std::string& name = op.weight.name;
  if (model.checkpoint.Has(name) ||
      !IsStoredInInt4(model.checkpoint, model.config.stored_quantization, name)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", name,
                   " is stored in int4, which is not supported for a head; quantise the model "
                   "without its head"));
}

bool AnyIn(const Model& model, Quantization quantization) {
  return std::ranges::any_of(model.graph.ops, [&](const GraphOp& op) {
    const auto* const linear = std::get_if<LinearOp>(&op);
    const auto* const head = std::get_if<HeadOp>(&op);
    return (linear != nullptr && PrecisionOf(model, *linear).quantization == quantization) ||
           (head != nullptr && PrecisionOf(model, *head).quantization == quantization);
  });
}

std::string QuantizationSuffix(const Model& model) {
  std::string suffix;
  bool int8 = false, head = false;
  int64_t group = 0;
  for (const GraphOp& op : model.graph.ops) {
    if (const auto* const linear = std::get_if<LinearOp>(&op)) {
      const WeightPrecision precision = PrecisionOf(model, *linear);
      int8 = int8 || precision.quantization == Quantization::kInt8;
      group = std::max(group, precision.group);
    } else if (const auto* const last = std::get_if<HeadOp>(&op)) {
      head = PrecisionOf(model, *last).quantization != Quantization::kNone;
    }
  }
  if (group > 0) absl::StrAppend(&suffix, "-int4-g", group);
  if (int8 || (head && group == 0)) suffix += "-int8";
  if (head) suffix += "-head";
  return suffix;
}

}  // namespace sluice
