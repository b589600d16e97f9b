// The precision in which a model's projections are computed, where it is not that of its tensors.
//
// Quantisation is never chosen silently. It is chosen by
//   "quantization": "none" | "int8"   in the object "sluice" of config.json, or in the
//                                     configuration of the daemon (ModelOptions)
//   "quantize_head": false            the head too, which otherwise stays as it is stored
// or by a checkpoint that stores quantised tensors, as "quantization_config" says
// (compressed-tensors, int-quantized). The embedding always stays as it is stored.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/enum_names.h"

namespace sluice {

class ObjectReader;
struct Model;
struct LinearOp;
struct HeadOp;

// kInt8: weights in int8 by output channel, activations in int8 by row, products in integers.
enum class Quantization { kNone, kInt8 };
constexpr auto EnumNamesOf(Quantization) {
  using enum Quantization;
  return EnumNameTable<Quantization>({{kNone, "none"}, {kInt8, "int8"}});
}

struct QuantizationConfig {
  Quantization projections = Quantization::kNone;
  bool head = false;  // as the projections

  bool operator==(const QuantizationConfig&) const = default;
};

// Reads the keys above. `extensions` is the object "sluice" of `root`.
QuantizationConfig ReadQuantization(ObjectReader& root, ObjectReader& extensions);

// Return whether the op's weights are multiplied in int8: they are stored so, or are to be
// quantised.
bool IsInInt8(const Model& model, const LinearOp& op);
bool IsInInt8(const Model& model, const HeadOp& op);
// Returns whether any op's weights are.
bool AnyInInt8(const Model& model);

}  // namespace sluice
