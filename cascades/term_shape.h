// Finds the kernel that a term of attention belongs to.
#pragma once

#include "cascades/einsum/term_pool.h"
#include "engine/attention_variant.h"

namespace sluice {

// The kinds of nodes in a term.
struct TermShape {
  bool folds = false;
  bool merges = false;
  bool sums_keys = false;  // reduces the keys m, or their chunks c, as a whole
  bool cuts_keys = false;  // reduces the keys j of a chunk
};

TermShape ShapeOf(const einsum::TermPool& pool, einsum::TermId term);

// Returns whether the nodes belong to the kernel; two_pass also uses its number of passes.
bool IsVariant(const TermShape& shape, AttentionVariant::Kind kind);

}  // namespace sluice
