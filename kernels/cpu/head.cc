#include "kernels/cpu/head.h"

#include <algorithm>
#include <limits>
#include <new>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/size_of.h"
#include "kernels/cpu/best.h"
#include "kernels/cpu/log_sum.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
namespace {

static_assert(kGemmTileStep % kSumColumns == 0);  // a tile holds whole blocks

constexpr int64_t kLineBytes = 64;
constexpr int64_t kBestRoom = 3 * kMaxBest;

int64_t SumBlocks(int64_t n) { return CeilDiv(n, kSumColumns); }

// The parts of the scratch.
struct Places {
  Places(int64_t n, int threads, std::byte* scratch) : end(0), begin(scratch) {
    const int64_t lists = threads * kHeadRows;
    tiles = Take<float>(lists * kGemmTileStride);
    sums = Take<BlockSum>(kHeadRows * SumBlocks(n));
    lists_of_best = Take<Best>(lists);
    keys = Take<uint64_t>(lists * kBestRoom);
    ids = Take<int32_t>(kHeadRows * kMaxBest);
    logits = Take<float>(kHeadRows * kMaxBest);
  }

  template <typename T>
  T* Take(int64_t count) {
    auto* const taken = reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(begin) + end);
    end += CeilDiv(count * kSizeOf<T>, kLineBytes) * kLineBytes;
    return taken;
  }

  int64_t end;
  std::byte* begin;
  float* tiles;         // one for each thread
  BlockSum* sums;       // [kHeadRows, SumBlocks(n)]
  Best* lists_of_best;  // [threads, kHeadRows]
  uint64_t* keys;       // [threads, kHeadRows, kBestRoom]
  int32_t* ids;         // [kHeadRows, kMaxBest]
  float* logits;        // like ids
};

class HeadRun {
 public:
  HeadRun(const Context& context, int64_t n, float soft_cap, std::span<const HeadRow> rows,
          std::byte* scratch, HeadResult* results)
      : table_(simd::TableFor(context.profile)),
        n_(n),
        threads_(context.pool->threads()),
        soft_cap_(soft_cap),
        rows_(rows),
        places_(n, threads_, scratch),
        results_(results) {
    for (size_t row = 0; row < rows.size(); ++row) {
      const int64_t k = rows[row].best;
      SLUICE_CHECK(k <= std::min(kMaxBest, n) && rows[row].target < n);
      for (int worker = 0; k > 0 && worker < threads_; ++worker) {
        const int64_t list = ListOf(worker, row);
        new (places_.lists_of_best + list) Best(places_.keys + list * kBestRoom, k, kBestRoom);
      }
    }
  }

  float* tiles() const { return places_.tiles; }

  void Use(const GemmTile& tile) const {
    for (int64_t i = 0; i < tile.rows; ++i) {
      const HeadRow& row = rows_[tile.row + i];
      float* const x = tile.out + i * kGemmTileStride;
      Finish(row, tile, x);
      if (row.logits != nullptr) {
        std::copy_n(x, tile.cols, row.logits + tile.col);
        continue;
      }
      const float largest = AddSums(tile.row + i, tile, x);
      if (row.best > 0) AddBest(ListOf(tile.worker, tile.row + i), row.best, tile, x, largest);
      const int64_t target = row.target - tile.col;
      if (target >= 0 && target < tile.cols) results_[tile.row + i].target_logit = x[target];
    }
  }

  // Combines the tiles of a row into its result.
  void Summarise(int64_t row) const {
    const HeadRow& wanted = rows_[row];
    if (wanted.logits != nullptr) return;
    const BlockSum* const blocks = places_.sums + row * SumBlocks(n_);
    const auto above = [](const BlockSum& a, const BlockSum& b) { return a.largest < b.largest; };
    LogSum sum(table_, std::max_element(blocks, blocks + SumBlocks(n_), above)->largest);
    for (int64_t b = 0; b < SumBlocks(n_); ++b) sum.Add(blocks[b]);
    int32_t* const ids = places_.ids + row * kMaxBest;
    float* const logits = places_.logits + row * kMaxBest;
    results_[row].log_sum = sum.log();
    results_[row].best_ids = ids;
    results_[row].best_logits = logits;
    if (wanted.best == 0) return;
    Best& best = places_.lists_of_best[ListOf(0, row)];
    for (int worker = 1; worker < threads_; ++worker) {
      best.AddAll(places_.lists_of_best[ListOf(worker, row)]);
    }
    best.Sort();
    for (int64_t i = 0; i < best.size(); ++i) {
      ids[i] = IndexOf(best.key(i));
      logits[i] = ValueOf(best.key(i));
    }
  }

 private:
  int64_t ListOf(int worker, int64_t row) const { return worker * kHeadRows + row; }

  void Finish(const HeadRow& row, const GemmTile& tile, float* x) const {
    if (soft_cap_ != 0) table_.soft_cap(soft_cap_, tile.cols, x);
    auto token = std::lower_bound(row.excluded.begin(), row.excluded.end(), tile.col);
    for (; token != row.excluded.end() && *token < tile.col + tile.cols; ++token) {
      x[*token - tile.col] = -std::numeric_limits<float>::infinity();
    }
  }

  // Adds the tile's block sums and returns the row's largest logit in the tile.
  float AddSums(int64_t row, const GemmTile& tile, const float* x) const {
    BlockSum* block = places_.sums + row * SumBlocks(n_) + tile.col / kSumColumns;
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t c = 0; c < tile.cols; c += kSumColumns, ++block) {
      *block = SumOfBlock(table_, x + c, std::min(kSumColumns, tile.cols - c));
      largest = std::max(largest, block->largest);
    }
    return largest;
  }

  void AddBest(int64_t list, int64_t k, const GemmTile& tile, const float* x, float largest) const {
    Best& best = places_.lists_of_best[list];
    if (best.cut() && largest < ValueOf(best.last())) return;  // a NaN is not above it either
    // For k = 1 only the largest logit is needed. A row with only -inf needs a bound that every
    // value passes.
    const float bound = k == 1 ? JustBelow(largest) : std::numeric_limits<float>::quiet_NaN();
    best.AddRange(table_, x, static_cast<int32_t>(tile.col), tile.cols, bound);
    best.Cut();
  }

  const simd::Table& table_;
  const int64_t n_;
  const int threads_;
  const float soft_cap_;
  const std::span<const HeadRow> rows_;
  const Places places_;
  HeadResult* const results_;
};

}  // namespace

int64_t HeadScratch(int64_t n, int threads) { return Places(n, threads, nullptr).end; }

void Head(const Context& context, const PackedWeights& weights, const HeadArgs& args,
          std::span<const HeadRow> rows, std::byte* scratch, HeadResult* results) {
  const auto count = std::ssize(rows);
  SLUICE_CHECK(count <= kHeadRows);
  const HeadRun run(context, weights.n(), args.soft_cap, rows, scratch, results);
  GemmByTiles(context, weights, count,
              {.x = args.x,
               .ldx = weights.k(),
               .bias = args.bias,
               .tiles = run.tiles(),
               .quantized = args.quantized},
              [&](const GemmTile& tile) { run.Use(tile); });
  context.pool->ParallelFor(count, 1, count * weights.n(), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) run.Summarise(row);
  });
}

}  // namespace sluice::kernels
