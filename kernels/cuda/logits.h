// What becomes of logits before they are scored: a soft cap, and tokens that do not exist for a
// row.
#pragma once

#include <cstdint>

#include "kernels/cuda/rows.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

struct LogitsArgs {
  float* logits;   // [rows, n]: x becomes soft_cap * tanh(x / soft_cap), where that is not 0;
  int32_t n;       // >= 1
  float soft_cap;  // >= 0
  const int32_t* excluded;  // and -inf at excluded[begin[r], begin[r + 1]) of row r, each in [0, n)
  const int32_t* begin;     // [rows + 1]
  LiveRows rows;
};

void FinishLogits(Stream& stream, const LogitsArgs& args);

}  // namespace sluice::kernels::cuda
