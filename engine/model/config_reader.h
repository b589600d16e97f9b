// The parts of reading config.json: those that families share, and one for each family. Errors go
// to the status of the readers; values stay in their range in any case.
#pragma once

#include <cstdint>

#include "base/json_reader.h"
#include "engine/model/config.h"

namespace sluice {

inline constexpr int64_t kMaxWidth = 65536;
inline constexpr int64_t kMaxModelPositions = int64_t{1} << 20;

// Reads the sizes under Llama's keys, and the heads.
void ReadLlamaSizes(ObjectReader& root, ModelConfig& config);
// Checks the bounds of `heads`, `kv_heads` and `head_dim`; `heads_key` is for errors.
void CheckHeads(ObjectReader& root, const char* heads_key, const ModelConfig& config);
// Reads rope_theta and rope_scaling, or rope_parameters, which has both.
void ReadRope(ObjectReader& root, RopeConfig& rope);

void ReadLlama(ObjectReader& root, ModelConfig& config);
void ReadQwen2(ObjectReader& root, ModelConfig& config);
void ReadGpt2(ObjectReader& root, ModelConfig& config);
void ReadBert(ObjectReader& root, ModelConfig& config);
// Requires that `extensions` is the object "sluice" of `root`.
void ReadSluice(ObjectReader& root, ObjectReader& extensions, ModelConfig& config);

}  // namespace sluice
