// The precision of a model's projections, if it differs from the precision of its tensors.
//
// Quantisation is never chosen silently. It is set by
//   "quantization": "none" | "int8" | "int4"   in the object "sluice" of config.json, or in the
//                                     configuration of the daemon (ModelOptions)
//   "quantization_group": 64          the rows of a group in int4: 32, 64 or 128
//   "quantize_head": false            the head too, in int8; otherwise it stays as it is stored
// or by a checkpoint that stores quantised tensors, as described in "quantization_config"
// (compressed-tensors, AWQ and GPTQ). Layers that are stored in int8 may compute some input
// channels in floats (kept_channels.h). The embedding always keeps its stored precision. Routers of
// experts are computed in f32.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/enum_names.h"

namespace sluice {

class ObjectReader;
struct Model;
struct LinearOp;
struct HeadOp;
struct TensorPart;
enum class MatrixLayout;

// kInt8: weights in int8 by output channel; kInt4: weights in int4 by output channel, in groups.
// Activations are in int8 by row, and products in integers.
enum class Quantization { kNone, kInt8, kInt4 };
constexpr auto EnumNamesOf(Quantization) {
  using enum Quantization;
  return EnumNameTable<Quantization>({{kNone, "none"}, {kInt8, "int8"}, {kInt4, "int4"}});
}

inline constexpr int64_t kQuantizationGroup = 64;
// Returns whether int4 is computed in groups of this size.
constexpr bool IsQuantizationGroup(int64_t group) {
  return group == 32 || group == 64 || group == 128;
}

struct QuantizationConfig {
  Quantization projections = Quantization::kNone;
  bool head = false;  // in int8, if the projections are quantised
  int64_t group = kQuantizationGroup;

  bool operator==(const QuantizationConfig&) const = default;
};

// The storage of quantised layers in a checkpoint. Its tensors determine which layers are
// quantised.
struct StoredQuantization {
  enum class Format {
    kNone,
    kInt8,    // compressed-tensors, int-quantized
    kPacked,  // compressed-tensors, pack-quantized
    kAwq,
    kGptq,    // words of zero points are stored minus 0x11111111
    kGptqV2,  // zero points are stored unchanged
  };
  Format format = Format::kNone;
  int64_t group = 0;   // rows of a group in int4; 0 for a whole column
  bool zeros = false;  // zero points are stored, else all are 8

  bool operator==(const StoredQuantization&) const = default;
};

// Reads the keys above. `extensions` is the object "sluice" of `root`.
QuantizationConfig ReadQuantization(ObjectReader& extensions);
StoredQuantization ReadStoredQuantization(ObjectReader& root);

// The precision in which an op's weights are multiplied.
struct WeightPrecision {
  Quantization quantization = Quantization::kNone;
  int64_t group = 0;    // of kInt4
  bool stored = false;  // the checkpoint stores them this way

  bool operator==(const WeightPrecision&) const = default;
};
WeightPrecision PrecisionOf(const Model& model, const LinearOp& op);
WeightPrecision PrecisionOf(const Model& model, const HeadOp& op);
// Returns InvalidArgument unless a layer of this layout can be read from a tensor that is stored
// quantised.
absl::Status CheckStoredLayout(const TensorPart& part, MatrixLayout layout);
// Returns the error for a tensor with several matrices that is stored quantised.
absl::Status StoredMatricesError(const TensorPart& part);
// Returns InvalidArgument if a layer in int8 has more inputs than kernels::kMaxInt8Depth.
absl::Status CheckInt8Depth(const Model& model);
// Returns InvalidArgument if the head is stored in int4.
absl::Status CheckStoredHead(const Model& model, const HeadOp& op);
// Returns whether any op of the model multiplies weights in this quantisation.
bool AnyIn(const Model& model, Quantization quantization);
inline bool AnyQuantized(const Model& model) {
  return AnyIn(model, Quantization::kInt8) || AnyIn(model, Quantization::kInt4);
}
// Returns the suffix of a profile's name: empty, or "-int8", "-int4-g64", with "-head" if the head
// is quantised too.
std::string QuantizationSuffix(const Model& model);

}  // namespace sluice
