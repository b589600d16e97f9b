// The exchange of blocks between the rows of a sequence: the token mixing of RankMixer (arXiv
// 2507.15551).
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

// A sequence has `tokens` rows. Each row has `tokens` blocks of `block` values:
//   out[row t, block h] = in[row h, block t]
// The missing rows of an incomplete last sequence count as zeros.
template <typename T>  // float, BFloat16
struct ExchangeArgs {
  const T* in;            // [rows, tokens * block]
  const int32_t* places;  // [rows], the rows of the sequences, one after another
  int32_t tokens;
  int32_t block;
  LiveRows rows;
  T* out;  // [rows, tokens * block], not `in`
};

template <typename T>
void Exchange(Stream& stream, const ExchangeArgs<T>& args);

}  // namespace sluice::kernels::cuda
