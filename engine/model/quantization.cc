#include "engine/model/quantization.h"

#include <algorithm>
#include <string>
#include <variant>

#include "base/json_reader.h"
#include "engine/model/model.h"

namespace sluice {
namespace {

constexpr size_t kLongestWord = 64;

// Fails unless the key has this value.
void Require(ObjectReader& object, const char* key, const std::string& value) {
  const std::string found = object.String(key, kLongestWord, "");
  if (found != value) object.Fail(key, "is not supported, must be \"" + value + "\"");
}

// Fails unless the object describes symmetric values of eight bits with this strategy.
void RequireInt8(ObjectReader& group, const char* key, const char* strategy, bool dynamic) {
  if (!group.Has(key)) return group.Fail(key, "is missing");
  ObjectReader values = group.Object(key);
  constexpr int64_t kBits = 8;
  if (values.Integer("num_bits", 1, 64, 0) != kBits) {
    values.Fail("num_bits", "is not supported, must be 8");
  }
  Require(values, "type", "int");
  Require(values, "strategy", strategy);
  if (!values.Boolean("symmetric", true)) values.Fail("symmetric", "must be true");
  if (values.Boolean("dynamic", false) != dynamic) {
    values.Fail("dynamic", dynamic ? "must be true" : "must be false");
  }
}

// Checks that what is stored is what the kernels compute. Which tensors are quantised is told by
// their dtype.
void CheckStored(ObjectReader& root) {
  ObjectReader stored = root.Object("quantization_config");
  Require(stored, "quant_method", "compressed-tensors");
  Require(stored, "format", "int-quantized");
  if (stored.Has("kv_cache_scheme")) stored.Fail("kv_cache_scheme", "is not supported");
  const nlohmann::json* const listed = stored.Find("config_groups");
  if (listed == nullptr || !listed->is_object()) {
    return stored.Fail("config_groups", "must be an object");
  }
  ObjectReader groups = stored.Object("config_groups");
  for (const auto& [name, unused] : listed->items()) {
    ObjectReader group = groups.Object(name);
    RequireInt8(group, "weights", "channel", false);
    RequireInt8(group, "input_activations", "token", true);
    if (group.Has("output_activations")) group.Fail("output_activations", "is not supported");
  }
}

}  // namespace

QuantizationConfig ReadQuantization(ObjectReader& root, ObjectReader& extensions) {
  if (root.Has("quantization_config")) CheckStored(root);
  QuantizationConfig config = {.projections = extensions.Enum<Quantization>("quantization"),
                               .head = extensions.Boolean("quantize_head", false)};
  if (config.head && config.projections == Quantization::kNone) {
    extensions.Fail("quantize_head", "needs quantization \"int8\"");
  }
  return config;
}

bool IsInInt8(const Model& model, const LinearOp& op) {
  return model.config.quantization.projections == Quantization::kInt8 ||
         model.checkpoint.IsInt8(op.weight.name);
}

bool IsInInt8(const Model& model, const HeadOp& op) {
  return model.config.quantization.head || model.checkpoint.IsInt8(op.weight.name);
}

bool AnyInInt8(const Model& model) {
  return std::ranges::any_of(model.graph.ops, [&](const GraphOp& op) {
    const auto* const linear = std::get_if<LinearOp>(&op);
    const auto* const head = std::get_if<HeadOp>(&op);
    return (linear != nullptr && IsInInt8(model, *linear)) ||
           (head != nullptr && IsInInt8(model, *head));
  });
}

}  // namespace sluice
