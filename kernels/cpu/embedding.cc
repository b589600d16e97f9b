#include "kernels/cpu/embedding.h"

#include <algorithm>

namespace sluice::kernels {
namespace {

// Adds scale * table[entry, :] to out.
void AddRow(const EmbedArgs& args, int64_t entry, float* out) {
  constexpr int64_t kBlock = 256;
  float block[kBlock];
  for (int64_t first = 0; first < args.dim; first += kBlock) {
    const int64_t n = std::min(kBlock, args.dim - first);
    ConvertToFloat(args.table, args.dtype, entry * args.dim + first, n, block);
    for (int64_t d = 0; d < n; ++d) out[first + d] += args.scale * block[d];
  }
}

void CopyRow(const EmbedArgs& args, int64_t entry, float* out) {
  ConvertToFloat(args.table, args.dtype, entry * args.dim, args.dim, out);
  if (args.scale == 1) return;
  for (int64_t d = 0; d < args.dim; ++d) out[d] *= args.scale;
}

}  // namespace

void Embed(const Context& context, const EmbedArgs& args) {
  constexpr int64_t kElementsPerTask = 16384;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, args.dim));
  context.pool->ParallelFor(args.rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t entry = args.ids == nullptr ? 0 : args.ids[r];
      if (entry < 0) continue;
      float* out = args.out + r * args.dim;
      if (args.accumulate) {
        AddRow(args, entry, out);
      } else {
        CopyRow(args, entry, out);
      }
    }
  });
}

}  // namespace sluice::kernels
