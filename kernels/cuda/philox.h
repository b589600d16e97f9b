// kernels::Philox for device code: Philox4x32-10 (Salmon et al., SC 2011).
#pragma once

#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

struct PhiloxWords {
  uint32_t word[4];
};

__device__ inline PhiloxWords Philox(uint64_t key, PhiloxWords counter) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  PhiloxWords c = counter;
  for (int32_t round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * c.word[0], product1 = kMultiplier1 * c.word[2];
    c = {{static_cast<uint32_t>(product1 >> 32) ^ c.word[1] ^ key0, static_cast<uint32_t>(product1),
          static_cast<uint32_t>(product0 >> 32) ^ c.word[3] ^ key1,
          static_cast<uint32_t>(product0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

}  // namespace sluice::kernels::cuda
