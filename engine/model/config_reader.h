// The parts of reading config.json: what families share, and each family. Errors go to the readers'
// status; values stay in their range in any case.
#pragma once

#include <cstdint>

#include "base/json_reader.h"
#include "engine/model/config.h"

namespace sluice {

inline constexpr int64_t kMaxWidth = 65536;
inline constexpr int64_t kMaxModelPositions = int64_t{1} << 20;

// The sizes under Llama's keys and the heads.
void ReadLlamaSizes(ObjectReader& root, ModelConfig& config);
// Checks what `heads`, `kv_heads` and `head_dim` must keep to; `heads_key` is for errors.
void CheckHeads(ObjectReader& root, const char* heads_key, const ModelConfig& config);
// rope_theta beside rope_scaling, or all of it in rope_parameters.
void ReadRope(ObjectReader& root, RopeConfig& rope);

void ReadLlama(ObjectReader& root, ModelConfig& config);
void ReadQwen2(ObjectReader& root, ModelConfig& config);
void ReadGpt2(ObjectReader& root, ModelConfig& config);
void ReadBert(ObjectReader& root, ModelConfig& config);
// `extensions` is the object "sluice" of `root`.
void ReadSluice(ObjectReader& root, ObjectReader& extensions, ModelConfig& config);

}  // namespace sluice
