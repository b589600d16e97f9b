// The exchange of blocks between the rows of a sequence: the token mixing of RankMixer (arXiv
// 2507.15551).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/context.h"

namespace sluice::kernels {

// A sequence has `tokens` rows. Each row has `tokens` blocks of `block` values:
//   out[row t, block h] = in[row h, block t]
// The missing rows of an incomplete last sequence count as zeros.
struct ExchangeArgs {
  const float* in;                  // [rows, tokens * block]
  std::span<const int32_t> places;  // [rows], the rows of the sequences, one after another
  int64_t tokens;
  int64_t block;
  float* out;  // [rows, tokens * block], not `in`
};

void Exchange(const Context& context, const ExchangeArgs& args);

}  // namespace sluice::kernels
