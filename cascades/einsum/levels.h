// The order that reductions impose on the einsums of a cascade, for one family of ranks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "cascades/einsum/cascade.h"

namespace sluice::einsum {

using RankFamily = absl::flat_hash_set<std::string>;

// Returns the rank, or the ranks whose size has the given symbol or the symbol of the given rank.
RankFamily FamilyOf(const Cascade& cascade, std::string_view rank_or_symbol);

struct Level {
  int level = 0;
  bool iterates = false;  // over a rank of the family
};

// Returns the level of each einsum, in the order of AllEinsums. Passes in analysis.h defines it.
std::vector<Level> LevelsOf(const Cascade& cascade, const RankFamily& family);

// Returns one more than the greatest level of the einsums that iterate over the family, or 0.
int PassesOf(const std::vector<Level>& levels);

}  // namespace sluice::einsum
