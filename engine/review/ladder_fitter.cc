#include "engine/review/ladder_fitter.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

namespace sluice {
namespace {

constexpr double kFloorRatio = 8;
// If padding costs the device nothing, tight buckets are still preferred to wide ones.
constexpr double kIndifference = 1e-3;

// A bucket counts as unused only if its minimum share of the batches would be at least this many
// batches.
constexpr double kEvidence = 4;

// Removes a bucket and moves its batches to the next bucket.
template <typename Rung>
void Drop(std::vector<Rung>* rungs, size_t index) {
  (*rungs)[index + 1].weight += (*rungs)[index].weight;
  rungs->erase(rungs->begin() + index);
}

}  // namespace

// The floor uses at most half of the buckets.
double LadderFitter::FloorRatio() const {
  const double range = static_cast<double>(limits_.max_tokens) / options_.min_tokens;
  return std::max(kFloorRatio, std::pow(range, 2.0 / limits_.MaxBuckets(options_)));
}

int32_t LadderFitter::Capacity(int32_t tokens) const {
  return std::min(limits_.rows.RoundUp(std::max(tokens, options_.min_tokens)), limits_.max_tokens);
}

double LadderFitter::PaddingCost(int32_t capacity) const {
  const Bucket bucket{.tokens = capacity, .sequences = std::min(capacity, limits_.max_sequences)};
  return law_.Estimate({.bucket = bucket}) +
         kIndifference * law_.Estimate({.bucket = bucket, .computed_tokens = capacity});
}

std::vector<int32_t> LadderFitter::WithFloor(std::span<const int32_t> capacities) const {
  std::vector<int32_t> dense;
  double previous = std::min(options_.min_tokens, limits_.max_tokens);
  for (const int32_t capacity : capacities) {
    const double gap = capacity / previous;
    const double steps = std::ceil(std::log(gap) / std::log(FloorRatio()) - 1e-9);
    for (double step = 1; step < steps; ++step) {
      dense.push_back(Capacity(static_cast<int32_t>(previous * std::pow(gap, step / steps))));
    }
    dense.push_back(capacity);
    previous = capacity;
  }
  return dense;
}

Ladder LadderFitter::Fit(std::span<const TokenWeight> totals) const {
  std::map<int32_t, double> raised;
  for (const TokenWeight& total : totals) {
    raised[Capacity(total.tokens)] += total.weight;
  }
  std::vector<TokenWeight> sizes;
  sizes.reserve(raised.size());
  for (const auto& [tokens, weight] : raised) sizes.push_back({tokens, weight});

  std::vector<int32_t> capacities;
  const int32_t max_buckets = limits_.MaxBuckets(options_);
  int count = max_buckets;
  do {
    capacities = WithFloor(FitCapacities(
        sizes, limits_.max_tokens, count, [this](int32_t tokens) { return PaddingCost(tokens); },
        [this](int32_t tokens) {
          return plan_cost_.capture_seconds(
              {.tokens = tokens, .sequences = std::min(tokens, limits_.max_sequences)});
        }));
  } while (std::ssize(capacities) > max_buckets && --count > 0);
  return Prune(MakePackedLadder(std::move(capacities), limits_), totals);
}

Ladder LadderFitter::Prune(const Ladder& ladder, std::span<const TokenWeight> totals) const {
  std::vector<Rung> rungs = Rungs(ladder, totals);
  DropUnused(&rungs);
  DropBucketsToMemory(&rungs);
  std::vector<Bucket> kept;
  kept.reserve(rungs.size());
  for (const Rung& rung : rungs) kept.push_back(rung.bucket);
  return Ladder(std::move(kept));
}

std::vector<Bucket> LadderFitter::Evicted(const Ladder& ladder,
                                          std::span<const TokenWeight> totals) const {
  std::vector<Rung> used = Rungs(ladder, totals);
  DropUnused(&used);
  std::vector<Rung> kept = used;
  DropBucketsToMemory(&kept);
  std::vector<Bucket> evicted;
  for (const Rung& rung : used) {
    const bool stays = std::ranges::find(kept, rung.bucket, &Rung::bucket) != kept.end();
    if (!stays) evicted.push_back(rung.bucket);
  }
  return evicted;
}

Ladder LadderFitter::PruneColumns(const Ladder& ladder,
                                  std::span<const TokenWeight> lengths) const {
  if (options_.memory_limit_bytes == 0) return ladder;
  std::vector<Rung> columns;
  auto length = lengths.begin();
  for (const Bucket& bucket : ladder.buckets()) {
    if (columns.empty() || columns.back().bucket.positions != bucket.positions) {
      columns.push_back({.bucket = bucket, .weight = 0, .bytes = 0});
      for (; length != lengths.end() && length->tokens <= bucket.positions; ++length) {
        columns.back().weight += length->weight;
      }
    }
    columns.back().bytes += plan_cost_.memory_bytes(bucket);
  }
  DropToMemory(
      [](const Rung& column, const Rung& wider) {
        return column.weight * (wider.bucket.positions - column.bucket.positions);
      },
      &columns);
  std::vector<Bucket> kept;
  std::ranges::copy_if(ladder.buckets(), std::back_inserter(kept), [&](const Bucket& bucket) {
    return std::ranges::any_of(
        columns, [&](const Rung& column) { return column.bucket.positions == bucket.positions; });
  });
  if (columns.size() > 1) return Ladder(std::move(kept));
  int64_t bytes = columns.front().bytes;
  auto first = kept.begin();
  for (; bytes > options_.memory_limit_bytes && first + 1 != kept.end(); ++first) {
    bytes -= plan_cost_.memory_bytes(*first);
  }
  return Ladder({first, kept.end()});
}

std::vector<LadderFitter::Rung> LadderFitter::Rungs(const Ladder& ladder,
                                                    std::span<const TokenWeight> totals) const {
  std::vector<Rung> rungs;
  auto total = totals.begin();
  for (const Bucket& bucket : ladder.buckets()) {
    double weight = 0;
    for (; total != totals.end() && total->tokens <= bucket.tokens; ++total) {
      weight += total->weight;
    }
    rungs.push_back({bucket, weight, plan_cost_.memory_bytes(bucket)});
  }
  return rungs;
}

void LadderFitter::DropUnused(std::vector<Rung>* rungs) const {
  double least = 0;
  for (const Rung& rung : *rungs) least += options_.min_bucket_usage * rung.weight;
  if (least < kEvidence) return;
  for (size_t i = 0; i + 1 < rungs->size();) {
    if ((*rungs)[i].weight < least) {
      Drop(rungs, i);
    } else {
      ++i;
    }
  }
}

void LadderFitter::DropBucketsToMemory(std::vector<Rung>* rungs) const {
  DropToMemory(
      [this](const Rung& rung, const Rung& next) {
        return rung.weight * (PaddingCost(next.bucket.tokens) - PaddingCost(rung.bucket.tokens));
      },
      rungs);
}

void LadderFitter::DropToMemory(absl::FunctionRef<double(const Rung&, const Rung& next)> benefit,
                                std::vector<Rung>* rungs) const {
  if (options_.memory_limit_bytes == 0) return;
  int64_t bytes = 0;
  for (const Rung& rung : *rungs) bytes += rung.bytes;
  while (bytes > options_.memory_limit_bytes && rungs->size() > 1) {
    // By benefit per byte; if equal, the bucket with the most bytes is dropped first.
    const auto rank = [&](size_t i) {
      const Rung& rung = (*rungs)[i];
      return std::pair(
          benefit(rung, (*rungs)[i + 1]) / static_cast<double>(std::max<int64_t>(rung.bytes, 1)),
          -rung.bytes);
    };
    size_t least = 0;
    for (size_t i = 1; i + 1 < rungs->size(); ++i) {
      if (rank(i) < rank(least)) least = i;
    }
    bytes -= (*rungs)[least].bytes;
    Drop(rungs, least);
  }
}

std::vector<TokenWeight> Pool(std::span<const std::vector<TokenWeight>> histograms) {
  std::map<int32_t, double> sums;
  for (const std::vector<TokenWeight>& histogram : histograms) {
    for (const TokenWeight& size : histogram) sums[size.tokens] += size.weight;
  }
  std::vector<TokenWeight> mean;
  mean.reserve(sums.size());
  for (const auto& [tokens, weight] : sums) {
    mean.push_back({tokens, weight / static_cast<double>(histograms.size())});
  }
  return mean;
}

}  // namespace sluice
