// The type in which KV pages hold keys and values.
//
// It is set by
//   "kv_dtype": "f32" | "bf16" | "int8"   in the object "sluice" of config.json, or in the
//                                         configuration of the daemon (ModelOptions)
#pragma once

#include <string>

#include "base/enum_names.h"
#include "kernels/kv_type.h"

namespace sluice::kernels {

constexpr auto EnumNamesOf(KvType) {
  using enum KvType;
  return EnumNameTable<KvType>({{kF32, "f32"}, {kBF16, "bf16"}, {kInt8, "int8"}});
}

}  // namespace sluice::kernels

namespace sluice {

using kernels::KvType;

// Returns the suffix of a profile's name: empty for f32, or "-kv-bf16", "-kv-int8".
inline std::string KvSuffix(KvType type) {
  if (type == KvType::kF32) return "";
  return "-kv-" + std::string(NameOf(type));
}

}  // namespace sluice
