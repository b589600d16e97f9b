#include "kernels/cuda/attention_tiles.h"

#include "kernels/cuda/reduce.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;

struct AttentionTilesShared {
  int32_t scratch[kWarp];
};

__global__ void AttentionTilesKernel(AttentionTilesArgs args) {
  auto& shared = SharedMemory<AttentionTilesShared>();
  const int32_t tiles = CutIntoPieces(
      *args.sequence_count, shared.scratch,
      [&args](int32_t sequence) {
        return (args.sequences[sequence].count * args.group + kTileQueries - 1) / kTileQueries;
      },
      [&args](int32_t sequence, int32_t piece, int32_t place) {
        args.tiles[place] = {sequence, piece * kTileQueries};
      });
  if (ThreadIndex() == 0) *args.tile_count = tiles;
}

const Kernel kAttentionTiles = KernelOf("AttentionTiles", &AttentionTilesKernel);

}  // namespace

void BuildAttentionTiles(Stream& stream, const AttentionTilesArgs& args) {
  Launch(stream, kAttentionTiles, {1, kThreads, sizeof(AttentionTilesShared)}, args);
}

}  // namespace sluice::kernels::cuda
