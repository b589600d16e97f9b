#include "engine/rows/padding.h"

#include <algorithm>

namespace sluice {
namespace {

// Mirrors the sequence at its last token, then at its first token, and so on. The mirrored token is
// not repeated.
void Reflect(int64_t live, std::span<int32_t> tokens) {
  if (live == 1) {
    std::fill(tokens.begin() + 1, tokens.end(), tokens[0]);
    return;
  }
  const int64_t period = 2 * (live - 1);
  for (int64_t i = live; i < std::ssize(tokens); ++i) {
    const int64_t phase = i % period;
    tokens[i] = tokens[phase < live ? phase : period - phase];
  }
}

}  // namespace

void Pad(PaddingKind kind, int32_t live, std::span<int32_t> tokens) {
  const std::span<int32_t> padding = tokens.subspan(live);
  if (kind == PaddingKind::kAdaptive) {
    kind = std::ssize(padding) < live ? PaddingKind::kReflect : PaddingKind::kEdge;
  }
  switch (kind) {
    case PaddingKind::kZeros:
      std::fill(padding.begin(), padding.end(), 0);
      break;
    case PaddingKind::kEdge:
      std::fill(padding.begin(), padding.end(), tokens[live - 1]);
      break;
    case PaddingKind::kReflect:
    case PaddingKind::kAdaptive:
      Reflect(live, tokens);
      break;
  }
}

}  // namespace sluice
