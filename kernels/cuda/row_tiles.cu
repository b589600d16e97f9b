#include "kernels/cuda/row_tiles.h"

#include "kernels/cuda/reduce.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;

struct RowTilesShared {
  int32_t scratch[kWarp];
};

__global__ void RowTilesKernel(RowTilesArgs args) {
  auto& shared = SharedMemory<RowTilesShared>();
  const int32_t tiles = CutIntoPieces(
      *args.group_count, shared.scratch,
      [&args](int32_t group) { return (args.groups[group].count + kTileRows - 1) / kTileRows; },
      [&args](int32_t group, int32_t piece, int32_t place) {
        const RowGroup& from = args.groups[group];
        const int32_t left = from.count - piece * kTileRows;
        args.tiles[place] = {from.position, from.first_row + piece * kTileRows,
                             left < kTileRows ? left : kTileRows};
      });
  if (ThreadIndex() == 0) *args.tile_count = tiles;
}

const Kernel kRowTiles = KernelOf("RowTiles", &RowTilesKernel);

}  // namespace

void BuildRowTiles(Stream& stream, const RowTilesArgs& args) {
  Launch(stream, kRowTiles, {1, kThreads, sizeof(RowTilesShared)}, args);
}

}  // namespace sluice::kernels::cuda
