#include "cascades/term_shape.h"

#include <vector>

namespace sluice {

using einsum::TermId;
using einsum::TermKind;
using einsum::TermPool;

TermShape ShapeOf(const TermPool& pool, TermId term) {
  TermShape shape;
  std::vector<TermId> open = {term};
  while (!open.empty()) {
    const einsum::Term& node = pool.TermOf(open.back());
    open.pop_back();
    shape.folds |= node.kind == TermKind::kFold;
    shape.merges |= node.kind == TermKind::kMerge;
    shape.sums_keys |= node.kind == TermKind::kReduce && (node.rank == "m" || node.rank == "c");
    shape.cuts_keys |= node.kind == TermKind::kReduce && node.rank == "j";
    open.insert(open.end(), node.args.begin(), node.args.end());
  }
  return shape;
}

bool IsVariant(const TermShape& shape, AttentionVariant::Kind kind) {
  using enum AttentionVariant::Kind;
  switch (kind) {
    case kOnePass:
      return shape.folds && !shape.merges && !shape.sums_keys;
    case kTwoPass:
      return !shape.folds && !shape.merges && !shape.cuts_keys;
    case kSplit:
      return shape.merges && !shape.folds && !shape.sums_keys;
    case kAuto:
      break;
  }
  return false;
}

}  // namespace sluice
