#include "kernels/cpu/logit_edits.h"

#include <limits>

namespace sluice::kernels {
namespace {

// Copies the logits of all tokens that the edits name; a token named twice is copied twice.
void CopyNamed(const LogitEdits& edits, const float* from, float* to) {
  for (const SeenToken& seen : edits.seen) to[seen.token] = from[seen.token];
  for (const TokenBias& bias : edits.bias) to[bias.token] = from[bias.token];
  for (const int32_t token : edits.banned) to[token] = from[token];
}

float Penalised(const LogitEdits& edits, int32_t generated, float x) {
  const float y = x > 0 ? x / edits.repetition : x * edits.repetition;
  if (generated == 0) return y;
  return y - edits.presence - static_cast<float>(generated) * edits.frequency;
}

}  // namespace

bool ApplyEdits(const LogitEdits& edits, float* x, float* saved) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CopyNamed(edits, x, saved);
  bool below_infinity = true;  // also false for a NaN, as from -inf + inf
  for (const SeenToken& seen : edits.seen) {
    x[seen.token] = Penalised(edits, seen.generated, x[seen.token]);
    below_infinity &= x[seen.token] < infinity;
  }
  for (const TokenBias& bias : edits.bias) {
    x[bias.token] += bias.bias;
    below_infinity &= x[bias.token] < infinity;
  }
  for (const int32_t token : edits.banned) x[token] = -infinity;
  return below_infinity;
}

void UndoEdits(const LogitEdits& edits, const float* saved, float* x) {
  CopyNamed(edits, saved, x);
}

}  // namespace sluice::kernels
