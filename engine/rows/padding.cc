#include "engine/rows/padding.h"

#include <algorithm>

namespace sluice {
namespace {

// Mirrors the sequence about its last token, then about its first one, and so on, without repeating
// either.
void Reflect(size_t live, std::span<int32_t> tokens) {
  if (live == 1) {
    std::fill(tokens.begin() + 1, tokens.end(), tokens[0]);
    return;
  }
  const size_t period = 2 * (live - 1);
  for (size_t i = live; i < tokens.size(); ++i) {
    const size_t phase = i % period;
    tokens[i] = tokens[phase < live ? phase : period - phase];
  }
}

}  // namespace

void Pad(PaddingKind kind, int32_t live, std::span<int32_t> tokens) {
  const auto size = static_cast<size_t>(live);
  const std::span<int32_t> padding = tokens.subspan(size);
  if (kind == PaddingKind::kAdaptive) {
    kind = padding.size() < size ? PaddingKind::kReflect : PaddingKind::kEdge;
  }
  switch (kind) {
    case PaddingKind::kZeros:
      std::fill(padding.begin(), padding.end(), 0);
      break;
    case PaddingKind::kEdge:
      std::fill(padding.begin(), padding.end(), tokens[size - 1]);
      break;
    case PaddingKind::kReflect:
    case PaddingKind::kAdaptive:
      Reflect(size, tokens);
      break;
  }
}

}  // namespace sluice
